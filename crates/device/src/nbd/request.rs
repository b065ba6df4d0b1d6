//! A request of the transmission phase: its header, and whether it makes sense.

use super::REQUEST_DATA_BYTES_MAX;

/// Length of the header.
pub const REQUEST_BYTES: usize = 28;

const MAGIC: u32 = 0x2560_9513;
const FLAG_FUA: u16 = 1 << 0;
const FLAG_NO_HOLE: u16 = 1 << 1;

/// What a client wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// `NBD_CMD_READ`
    Read,
    /// `NBD_CMD_WRITE`; the data follow the header.
    Write,
    /// `NBD_CMD_DISC`
    Disconnect,
    /// `NBD_CMD_FLUSH`
    Flush,
    /// `NBD_CMD_TRIM`
    Trim,
    /// `NBD_CMD_WRITE_ZEROES`
    WriteZeroes,
    /// Another one.
    Unknown(u16),
}

/// An error of the protocol, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
#[expect(missing_docs, reason = "they are those of errno(3)")]
pub enum ErrorNumber {
    Io = 5,
    Invalid = 22,
    NoSpace = 28,
}

/// The header of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// What is wanted.
    pub command: Command,
    /// Command flags.
    pub flags: u16,
    /// By what the client knows the answer.
    pub cookie: u64,
    /// From where on.
    pub offset_bytes: u64,
    /// How much.
    pub bytes: u32,
}

/// The bytes are no header: nothing that follows can be understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

impl Request {
    /// Reads a header.
    ///
    /// # Errors
    /// [`Malformed`] when it does not begin as one.
    pub fn parse(header: &[u8; REQUEST_BYTES]) -> Result<Request, Malformed> {
        let (magic, rest) = header.split_first_chunk().ok_or(Malformed)?;
        let (flags, rest) = rest.split_first_chunk().ok_or(Malformed)?;
        let (command, rest) = rest.split_first_chunk().ok_or(Malformed)?;
        let (cookie, rest) = rest.split_first_chunk().ok_or(Malformed)?;
        let (offset, rest) = rest.split_first_chunk().ok_or(Malformed)?;
        let bytes = rest.first_chunk().ok_or(Malformed)?;
        if u32::from_be_bytes(*magic) != MAGIC {
            return Err(Malformed);
        }
        Ok(Request {
            command: match u16::from_be_bytes(*command) {
                0 => Command::Read,
                1 => Command::Write,
                2 => Command::Disconnect,
                3 => Command::Flush,
                4 => Command::Trim,
                6 => Command::WriteZeroes,
                other => Command::Unknown(other),
            },
            flags: u16::from_be_bytes(*flags),
            cookie: u64::from_be_bytes(*cookie),
            offset_bytes: u64::from_be_bytes(*offset),
            bytes: u32::from_be_bytes(*bytes),
        })
    }

    /// Whether a device of `size_bytes` can do it.
    ///
    /// # Errors
    /// What the client is to be told.
    pub fn check(&self, size_bytes: u64) -> Result<(), ErrorNumber> {
        let known_flags = match self.command {
            Command::WriteZeroes => FLAG_FUA | FLAG_NO_HOLE,
            _ => FLAG_FUA,
        };
        let end = self.offset_bytes.checked_add(u64::from(self.bytes));
        let is_within = end.is_some_and(|end| end <= size_bytes);
        match self.command {
            _ if self.flags & !known_flags != 0 => Err(ErrorNumber::Invalid),
            Command::Read if self.bytes > REQUEST_DATA_BYTES_MAX => Err(ErrorNumber::Invalid),
            Command::Read | Command::Trim if !is_within => Err(ErrorNumber::Invalid),
            Command::Write | Command::WriteZeroes if !is_within => Err(ErrorNumber::NoSpace),
            Command::Unknown(_) => Err(ErrorNumber::Invalid),
            _ => Ok(()),
        }
    }

    /// Whether it is to be done for good before it is answered.
    pub fn is_fua(&self) -> bool {
        self.flags & FLAG_FUA != 0
    }

    /// Whether zeros may take no room.
    pub fn may_free(&self) -> bool {
        self.flags & FLAG_NO_HOLE == 0
    }

    /// The header's bytes, for clients.
    pub fn to_bytes(&self) -> [u8; REQUEST_BYTES] {
        let command = match self.command {
            Command::Read => 0,
            Command::Write => 1,
            Command::Disconnect => 2,
            Command::Flush => 3,
            Command::Trim => 4,
            Command::WriteZeroes => 6,
            Command::Unknown(other) => other,
        };
        let mut header = [0; REQUEST_BYTES];
        header[..4].copy_from_slice(&MAGIC.to_be_bytes());
        header[4..6].copy_from_slice(&self.flags.to_be_bytes());
        header[6..8].copy_from_slice(&u16::to_be_bytes(command));
        header[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        header[16..24].copy_from_slice(&self.offset_bytes.to_be_bytes());
        header[24..].copy_from_slice(&self.bytes.to_be_bytes());
        header
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE_BYTES: u64 = 1 << 20;

    fn request(command: Command, flags: u16, offset_bytes: u64, bytes: u32) -> Request {
        Request { command, flags, cookie: 7, offset_bytes, bytes }
    }

    #[test]
    fn a_header_says_what_was_put_in() {
        for number in [0, 1, 2, 3, 4, 5, 6, 7, 0xffff] {
            let mut header = request(Command::Read, 3, 1 << 40, u32::MAX).to_bytes();
            header[6..8].copy_from_slice(&u16::to_be_bytes(number));
            let read = Request::parse(&header).expect("a header");
            assert_eq!(read.to_bytes(), header);
            assert_eq!((read.flags, read.cookie, read.offset_bytes), (3, 7, 1 << 40));
        }
        assert_eq!(Request::parse(&[0; REQUEST_BYTES]), Err(Malformed));
    }

    #[test]
    fn what_cannot_be_done_is_told() {
        use Command::{Flush, Read, Trim, Unknown, Write, WriteZeroes};
        use ErrorNumber::{Invalid, NoSpace};
        let size = SIZE_BYTES as u32;
        let table = [
            (request(Read, 0, 0, size), Ok(())),
            (request(Read, 0, 1, size), Err(Invalid)),
            (request(Read, 0, u64::MAX, 2), Err(Invalid)),
            (request(Read, 4, 0, 1), Err(Invalid)),
            (request(Write, 1, SIZE_BYTES - 1, 1), Ok(())),
            (request(Write, 0, SIZE_BYTES, 1), Err(NoSpace)),
            (request(Write, 2, 0, 1), Err(Invalid)),
            (request(Trim, 0, 0, size + 1), Err(Invalid)),
            (request(WriteZeroes, 3, 0, size), Ok(())),
            (request(WriteZeroes, 4, 0, size), Err(Invalid)),
            (request(WriteZeroes, 0, u64::MAX, 1), Err(NoSpace)),
            (request(Flush, 0, 0, 0), Ok(())),
            (request(Unknown(5), 0, 0, 0), Err(Invalid)),
        ];
        for (request, outcome) in table {
            assert_eq!(request.check(SIZE_BYTES), outcome, "{request:?}");
        }
        assert_eq!(request(Read, 0, 0, (32 << 20) + 1).check(1 << 40), Err(Invalid));
    }
}
