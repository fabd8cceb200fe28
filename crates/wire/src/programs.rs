//! The programs that came lately.

use crate::decoder::whole;
use crate::form::ProgramForm;
use crate::{MAX_PROGRAM_BYTES, WireError};
use engine::Program;
use std::collections::HashMap;
use std::sync::Arc;

/// The most programs that are kept.
const MAX_PROGRAMS: usize = 256;

/// The most memory that all of these come to take, with the bytes that they came in.
const MAX_BYTES: u64 = 256 << 20;

/// The most fields of a copy: what a program takes for each, it takes for every hop.
const MAX_FIELDS: usize = 4096;

/// The most pieces that a request falls into, but for one for each byte that the program came in:
/// an index list has no more entries.
const MAX_PIECES: u64 = 1 << 16;

/// Programs by the bytes that they were compiled from. Invariant: at most [`MAX_PROGRAMS`], of
/// [`MAX_BYTES`] in all; what was not asked for for longest goes first.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    kept: HashMap<Arc<[u8]>, Kept>,
    /// What all that are kept come to take.
    bytes: u64,
    /// How often one was asked for.
    asked: u64,
}

#[derive(Debug)]
struct Kept {
    program: Arc<Program>,
    bytes: u64,
    last_asked: u64,
}

impl Programs {
    /// The program that was compiled from `bytes`, or is now.
    pub(crate) fn of(&mut self, bytes: &[u8]) -> Result<Arc<Program>, WireError> {
        self.asked += 1;
        if let Some(kept) = self.kept.get_mut(bytes) {
            kept.last_asked = self.asked;
            return Ok(Arc::clone(&kept.program));
        }
        let program = Arc::new(compile(bytes)?);
        self.keep(bytes, &program);
        Ok(program)
    }

    fn keep(&mut self, key: &[u8], program: &Arc<Program>) {
        let bytes = key.len() as u64 + program.max_bytes();
        if bytes > MAX_BYTES {
            return;
        }
        while self.kept.len() >= MAX_PROGRAMS || self.bytes + bytes > MAX_BYTES {
            self.drop_oldest();
        }
        self.bytes += bytes;
        let kept = Kept { program: Arc::clone(program), bytes, last_asked: self.asked };
        self.kept.insert(key.into(), kept);
    }

    fn drop_oldest(&mut self) {
        let oldest = self.kept.iter().min_by_key(|(_, kept)| kept.last_asked);
        let dropped = oldest.map(|(key, _)| Arc::clone(key)).and_then(|key| self.kept.remove(&key));
        self.bytes -= dropped.map_or(0, |kept| kept.bytes);
    }
}

/// The program that `bytes` stand for, if it is no larger than what is taken from others.
fn compile(bytes: &[u8]) -> Result<Program, WireError> {
    if bytes.len() > MAX_PROGRAM_BYTES {
        return Err(WireError::TooLong { bytes: bytes.len(), most: MAX_PROGRAM_BYTES });
    }
    let ProgramForm { plan, src, dst } = whole(bytes)?;
    let fields = src.field_bytes().len();
    if fields > MAX_FIELDS {
        return Err(WireError::TooManyFields { fields, most: MAX_FIELDS });
    }
    let max_pieces = MAX_PIECES + bytes.len() as u64;
    Ok(Program::compile_within(&plan, src.into_owned(), dst.into_owned(), max_pieces)?)
}
