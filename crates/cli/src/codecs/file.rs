//! Pages of a file: one behind the other, as in a swap file or a dump of memory.
//!
//! What is left behind the last whole page is no page and is left out, with a note.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

use zpager_codec::{PAGE_BYTES, Page};

use super::sample::{Drawing, Reservoir, Sample};
use crate::failure::Failure;

/// Draws pages of `file`.
///
/// # Errors
/// It cannot be read or holds no page.
pub(super) fn take(file: &Path, drawing: Drawing) -> Result<Sample, Failure> {
    let wrong = |why: String| Failure::arguments(format!("{}: {why}", file.display()));
    let unreadable =
        |error| wrong(format!("{error}: give a file of raw pages, or a program after `--`"));
    let kind = file.metadata().map_err(unreadable)?.file_type();
    if kind.is_dir() {
        return Err(wrong("a directory: give a file of raw pages inside it".into()));
    }
    // Not opened before this is known: opening a pipe waits for its writer.
    if !kind.is_file() && !kind.is_block_device() {
        return Err(wrong("no plain file: write its contents to one first".into()));
    }
    let mut open = File::open(file).map_err(unreadable)?;
    let file_bytes = open.seek(SeekFrom::End(0)).map_err(unreadable)?;
    if file_bytes < PAGE_BYTES as u64 {
        return Err(wrong(format!(
            "{file_bytes} bytes hold no page: give a file of at least {PAGE_BYTES} bytes"
        )));
    }
    let mut sample = read(&open, file_bytes, drawing).map_err(unreadable)?;
    sample.notes.extend(note_of_tail(file, file_bytes));
    Ok(sample)
}

fn read(file: &File, file_bytes: u64, drawing: Drawing) -> std::io::Result<Sample> {
    let mut reservoir = Reservoir::new(drawing);
    let offered_pages = file_bytes / PAGE_BYTES as u64;
    (0..offered_pages).for_each(|number| reservoir.offer(number));
    let mut sample = Sample { offered_pages, ..Sample::default() };
    for number in reservoir.into_places() {
        let mut page = Page::ZERO;
        file.read_exact_at(&mut page.0, number * PAGE_BYTES as u64)?;
        sample.add(page);
    }
    Ok(sample)
}

fn note_of_tail(file: &Path, file_bytes: u64) -> Option<String> {
    let tail_bytes = file_bytes % PAGE_BYTES as u64;
    (tail_bytes > 0).then(|| {
        format!("{}: the last {tail_bytes} bytes are no whole page and left out", file.display())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWING: Drawing = Drawing { pages_max: 100, seed: 1 };

    #[test]
    fn whole_pages_are_taken_and_the_tail_is_told_of() {
        let file = std::env::temp_dir().join(format!("zpager-pages-{}", std::process::id()));
        let bytes: Vec<u8> = (0..3 * PAGE_BYTES + 10).map(|at| (at / 64) as u8).collect();
        std::fs::write(&file, &bytes).expect("written");
        let sample = take(&file, DRAWING).expect("taken");
        assert_eq!(sample.offered_pages, 3);
        let taken: Vec<u8> = sample.pages.iter().flat_map(|page| page.0).collect();
        assert!(taken == bytes[..3 * PAGE_BYTES]);
        assert!(sample.notes[0].contains("10 bytes"), "{:?}", sample.notes);
        std::fs::write(&file, &bytes[..PAGE_BYTES - 1]).expect("written");
        assert!(take(&file, DRAWING).err().expect("no page").message.contains("4095 bytes"));
        std::fs::remove_file(&file).expect("removed");
    }

    #[test]
    fn what_is_no_file_of_pages_is_refused() {
        for (name, said) in
            [("/nowhere", "No such file"), ("/usr", "directory"), ("/dev/zero", "no plain file")]
        {
            let failure = take(Path::new(name), DRAWING).err().expect(name);
            assert_eq!(failure.status, 2);
            assert!(failure.message.contains(said), "{failure:?}");
        }
    }
}
