//! The programs that came lately.

use crate::WireError;
use crate::decoder::whole;
use crate::form::ProgramForm;
use engine::Program;
use std::collections::HashMap;
use std::sync::Arc;

/// The most programs that are kept.
const MAX_PROGRAMS: usize = 1024;

/// The most bytes that the programs which are kept came in.
const MAX_BYTES: usize = 64 << 20;

/// Programs by the bytes that they were compiled from. Invariant: at most [`MAX_PROGRAMS`], of
/// [`MAX_BYTES`] in all; what was not asked for for longest goes first.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    kept: HashMap<Arc<[u8]>, Kept>,
    /// Of all that are kept.
    bytes: usize,
    /// How often one was asked for.
    asked: u64,
}

#[derive(Debug)]
struct Kept {
    program: Arc<Program>,
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
        let ProgramForm { plan, src, dst } = whole(bytes)?;
        let program = Arc::new(Program::compile(&plan, src.into_owned(), dst.into_owned())?);
        self.keep(bytes, &program);
        Ok(program)
    }

    fn keep(&mut self, bytes: &[u8], program: &Arc<Program>) {
        if bytes.len() > MAX_BYTES {
            return;
        }
        while self.kept.len() >= MAX_PROGRAMS || self.bytes + bytes.len() > MAX_BYTES {
            self.drop_oldest();
        }
        self.bytes += bytes.len();
        let kept = Kept { program: Arc::clone(program), last_asked: self.asked };
        self.kept.insert(bytes.into(), kept);
    }

    fn drop_oldest(&mut self) {
        let oldest = self.kept.iter().min_by_key(|(_, kept)| kept.last_asked);
        if let Some(bytes) = oldest.map(|(bytes, _)| Arc::clone(bytes)) {
            self.bytes -= bytes.len();
            self.kept.remove(&bytes);
        }
    }
}
