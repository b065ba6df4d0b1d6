//! The handshake: what is exported, and what both sides can do.

use std::io::{self, ErrorKind};

use super::stream::{Socket, Stream};
use super::{REQUEST_DATA_BYTES_MAX, flags};

const MAGIC: u64 = 0x4e42_444d_4147_4943;
const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;

const FIXED_NEWSTYLE: u16 = 1 << 0;
const NO_ZEROES: u16 = 1 << 1;

const OPTION_EXPORT_NAME: u32 = 1;
const OPTION_ABORT: u32 = 2;
const OPTION_LIST: u32 = 3;
const OPTION_INFO: u32 = 6;
const OPTION_GO: u32 = 7;
const OPTION_STRUCTURED_REPLY: u32 = 8;

const REPLY_ACK: u32 = 1;
const REPLY_SERVER: u32 = 2;
const REPLY_INFO: u32 = 3;
const REPLY_ERROR_UNSUPPORTED: u32 = 1 << 31 | 1;
const REPLY_ERROR_INVALID: u32 = 1 << 31 | 3;
const REPLY_ERROR_UNKNOWN: u32 = 1 << 31 | 6;
const REPLY_ERROR_TOO_BIG: u32 = 1 << 31 | 9;

const INFO_EXPORT: u16 = 0;
const INFO_NAME: u16 = 1;
const INFO_BLOCK_SIZE: u16 = 3;

/// Zeros behind the answer to `NBD_OPT_EXPORT_NAME`.
const ZEROES_BYTES: usize = 124;
/// Most bytes of an option that is looked at: a name and some words.
const OPTION_BYTES_MAX: usize = 4096 + 512;
/// Most bytes of an option that are passed over.
const OPTION_BYTES_SKIPPED_MAX: usize = 64 << 10;
/// Most options of one client.
const OPTIONS_MAX: u32 = 64;
/// The size of a block that suits the device.
const BLOCK_BYTES: u32 = 4096;

/// What is exported.
#[derive(Debug, Clone)]
pub struct Export {
    /// The name by which clients ask for it; they may also ask for none.
    pub name: String,
    /// How large it is.
    pub size_bytes: u64,
}

/// What was agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Agreed {
    /// Reads are answered in chunks.
    pub(super) structured: bool,
}

/// One client's handshake.
struct Negotiation<'a, S> {
    stream: &'a mut Stream<S>,
    export: &'a Export,
    structured: bool,
}

/// Greets a client and does what it asks; `None` when it wants no more than that.
///
/// # Errors
/// The client is gone, or does not keep to the protocol.
pub(super) fn negotiate<S: Socket>(
    stream: &mut Stream<S>,
    export: &Export,
) -> io::Result<Option<Agreed>> {
    stream.put(&MAGIC.to_be_bytes())?;
    stream.put(&OPTION_MAGIC.to_be_bytes())?;
    stream.put(&(FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes())?;
    let client_flags = u32::from_be_bytes(stream.take_array()?);
    if client_flags & !u32::from(FIXED_NEWSTYLE | NO_ZEROES) != 0 {
        return Err(ErrorKind::InvalidData.into());
    }
    let no_zeroes = client_flags & u32::from(NO_ZEROES) != 0;
    let mut negotiation = Negotiation { stream, export, structured: false };
    for _ in 0..OPTIONS_MAX {
        if let Some(end) = negotiation.option(no_zeroes)? {
            return Ok(end);
        }
    }
    Err(ErrorKind::InvalidData.into())
}

impl<S: Socket> Negotiation<'_, S> {
    /// Answers one option; gives what was agreed on when it is the last.
    fn option(&mut self, no_zeroes: bool) -> io::Result<Option<Option<Agreed>>> {
        if u64::from_be_bytes(self.stream.take_array()?) != OPTION_MAGIC {
            return Err(ErrorKind::InvalidData.into());
        }
        let option = u32::from_be_bytes(self.stream.take_array()?);
        let bytes = u32::from_be_bytes(self.stream.take_array()?) as usize;
        if bytes > OPTION_BYTES_MAX {
            if bytes > OPTION_BYTES_SKIPPED_MAX || option == OPTION_EXPORT_NAME {
                return Err(ErrorKind::InvalidData.into());
            }
            self.stream.skip(bytes)?;
            self.reply(option, REPLY_ERROR_TOO_BIG, &[])?;
            return Ok(None);
        }
        let mut buffer = [0; OPTION_BYTES_MAX];
        let data = &mut buffer[..bytes];
        self.stream.take(data)?;
        match option {
            OPTION_EXPORT_NAME => return self.export_name(data, no_zeroes).map(Some),
            OPTION_ABORT => {
                self.reply(option, REPLY_ACK, &[])?;
                self.stream.flush()?;
                return Ok(Some(None));
            }
            OPTION_LIST if bytes == 0 => self.list()?,
            OPTION_INFO | OPTION_GO => {
                if self.info(option, data)? && option == OPTION_GO {
                    return Ok(Some(Some(Agreed { structured: self.structured })));
                }
            }
            OPTION_STRUCTURED_REPLY if bytes == 0 => {
                self.structured = true;
                self.reply(option, REPLY_ACK, &[])?;
            }
            OPTION_LIST | OPTION_STRUCTURED_REPLY => {
                self.reply(option, REPLY_ERROR_INVALID, &[])?;
            }
            _ => self.reply(option, REPLY_ERROR_UNSUPPORTED, &[])?,
        }
        Ok(None)
    }

    fn reply(&mut self, option: u32, kind: u32, data: &[u8]) -> io::Result<()> {
        self.stream.put(&REPLY_MAGIC.to_be_bytes())?;
        self.stream.put(&option.to_be_bytes())?;
        self.stream.put(&kind.to_be_bytes())?;
        self.stream.put(&(data.len() as u32).to_be_bytes())?;
        self.stream.put(data)
    }

    fn is_export(&self, name: &[u8]) -> bool {
        name.is_empty() || name == self.export.name.as_bytes()
    }

    /// The old way to begin, which has no answer for a wrong name.
    fn export_name(&mut self, name: &[u8], no_zeroes: bool) -> io::Result<Option<Agreed>> {
        if !self.is_export(name) {
            return Err(ErrorKind::NotFound.into());
        }
        self.stream.put(&self.export.size_bytes.to_be_bytes())?;
        self.stream.put(&flags::TRANSMISSION.to_be_bytes())?;
        if !no_zeroes {
            self.stream.put(&[0; ZEROES_BYTES])?;
        }
        Ok(Some(Agreed { structured: self.structured }))
    }

    fn list(&mut self) -> io::Result<()> {
        let name = self.export.name.as_bytes();
        let entry = [&(name.len() as u32).to_be_bytes(), name].concat();
        self.reply(OPTION_LIST, REPLY_SERVER, &entry)?;
        self.reply(OPTION_LIST, REPLY_ACK, &[])
    }

    /// Tells what is exported; whether there is such a thing.
    fn info(&mut self, option: u32, data: &[u8]) -> io::Result<bool> {
        let Some((name, wanted)) = parse_info(data) else {
            self.reply(option, REPLY_ERROR_INVALID, &[])?;
            return Ok(false);
        };
        if !self.is_export(name) {
            self.reply(option, REPLY_ERROR_UNKNOWN, &[])?;
            return Ok(false);
        }
        let mut export = [0; 12];
        export[..2].copy_from_slice(&INFO_EXPORT.to_be_bytes());
        export[2..10].copy_from_slice(&self.export.size_bytes.to_be_bytes());
        export[10..].copy_from_slice(&flags::TRANSMISSION.to_be_bytes());
        self.reply(option, REPLY_INFO, &export)?;
        let mut sizes = [0; 14];
        sizes[..2].copy_from_slice(&INFO_BLOCK_SIZE.to_be_bytes());
        for (at, bytes) in [1, BLOCK_BYTES, REQUEST_DATA_BYTES_MAX].into_iter().enumerate() {
            sizes[2 + at * 4..6 + at * 4].copy_from_slice(&bytes.to_be_bytes());
        }
        self.reply(option, REPLY_INFO, &sizes)?;
        let wants_name = wanted.chunks_exact(2).any(|word| word == INFO_NAME.to_be_bytes());
        if wants_name {
            let name = [&INFO_NAME.to_be_bytes(), self.export.name.as_bytes()].concat();
            self.reply(option, REPLY_INFO, &name)?;
        }
        self.reply(option, REPLY_ACK, &[])?;
        Ok(true)
    }
}

/// The name that is asked for, and the 16-bit words that say what is to be told of it.
fn parse_info(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let (name_bytes, rest) = data.split_first_chunk()?;
    let (name, rest) = rest.split_at_checked(u32::from_be_bytes(*name_bytes) as usize)?;
    let (words, wanted) = rest.split_first_chunk()?;
    let is_whole = wanted.len() == usize::from(u16::from_be_bytes(*words)) * 2;
    is_whole.then_some((name, wanted))
}
