//! The file of a trace: it appears under its name when it is whole, and not at all otherwise.
//!
//! What is no plain file, such as a pipe, is written as the trace is recorded.

use std::cell::Cell;
use std::io::{self, BufWriter, IntoInnerError, Write};
use std::path::Path;
use std::rc::Rc;

use crate::result_file::ResultFile;

/// The file, while it is written.
#[derive(Debug)]
pub(super) struct Output {
    file: BufWriter<ResultFile>,
    written_bytes: Rc<Cell<u64>>,
}

impl Output {
    /// Makes the file. `written_bytes` counts what is written.
    ///
    /// # Errors
    /// What the system refused.
    pub(super) fn create(file: &Path, written_bytes: Rc<Cell<u64>>) -> io::Result<Self> {
        Ok(Output { file: BufWriter::new(ResultFile::create(file)?), written_bytes })
    }

    /// Gives the whole file its name.
    ///
    /// # Errors
    /// What the system refused; there is no file then.
    pub(super) fn keep(self) -> io::Result<()> {
        self.file.into_inner().map_err(IntoInnerError::into_error)?.keep()
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.written_bytes.update(|before| before + written as u64);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_file_when_it_is_whole_and_not_before() {
        let folder = std::env::temp_dir().join(format!("zpager-output-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let count = || std::fs::read_dir(&folder).expect("listed").count();
        let file = folder.join("trace");
        let written_bytes = Rc::new(Cell::new(0));
        let mut output = Output::create(&file, written_bytes.clone()).expect("made");
        output.write_all(b"half").expect("written");
        assert!(!file.exists());
        drop(output);
        assert_eq!(count(), 0);
        let mut output = Output::create(&file, written_bytes.clone()).expect("made");
        output.write_all(b"whole").expect("written");
        output.keep().expect("named");
        assert_eq!(std::fs::read(&file).expect("read"), b"whole");
        assert_eq!((count(), written_bytes.get()), (1, 9));
        std::fs::remove_dir_all(&folder).expect("removed");
    }
}
