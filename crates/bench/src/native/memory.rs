//! The source and the destination of a case.

use crate::Error;
use crate::peer::Spans;
use isometry::{Array, Instance, Machine};
use std::slice;

/// What a destination is filled with before a contender's run is checked.
const POISON: u8 = 0xA5;

/// The source and the destination of a case, in host memory as a machine hands it out.
#[derive(Debug)]
pub(crate) struct Buffers {
    src: Instance,
    dst: Instance,
    /// How far behind the start of a line the destination begins.
    behind: usize,
}

impl Buffers {
    /// Buffers of so many bytes, of which the destination begins `behind` the start of a line.
    pub(crate) fn new(machine: &Machine, [src, dst]: [u64; 2], behind: u64) -> Result<Self, Error> {
        let empty =
            |bytes| Ok::<_, Error>(machine.empty(Array::of(&[("b", bytes)], "|u1")?, "sys")?);
        let buffers =
            Buffers { src: empty(src)?, dst: empty(dst + behind)?, behind: behind as usize };
        // Every page is touched before anything is timed.
        buffers.poison()?;
        Ok(buffers)
    }

    /// Where they lie.
    pub(crate) fn spans(&self) -> Result<Spans, Error> {
        let span = |of: &Instance| {
            let span = of.host_span()?;
            Ok::<_, Error>((span.start().as_ptr() as usize, span.len_bytes()))
        };
        let (start, bytes) = span(&self.dst)?;
        Ok(Spans { src: span(&self.src)?, dst: (start + self.behind, bytes - self.behind) })
    }

    /// Calls `fill` with the source.
    pub(crate) fn fill(&self, fill: impl FnOnce(&mut [u8])) -> Result<(), Error> {
        fill(self.bytes(&self.src)?);
        Ok(())
    }

    /// Fills the destination with what no case puts there.
    pub(crate) fn poison(&self) -> Result<(), Error> {
        self.bytes(&self.dst)?.fill(POISON);
        Ok(())
    }

    /// What `check` says of source and destination.
    pub(crate) fn check(&self, check: impl FnOnce(&[u8], &[u8]) -> bool) -> Result<bool, Error> {
        Ok(check(self.bytes(&self.src)?, &self.bytes(&self.dst)?[self.behind..]))
    }

    /// Private, and each caller above gives the slice back before it returns.
    #[expect(clippy::mut_from_ref, reason = "the memory is not the instance's own")]
    fn bytes(&self, of: &Instance) -> Result<&mut [u8], Error> {
        let span = of.host_span()?;
        // SAFETY: the instance is this type's own and owns the memory as long as it lives; no run
        // goes at the same time, since this is not `Sync`, and no two slices of one instance are
        // alive at once, as the callers see to.
        Ok(unsafe { slice::from_raw_parts_mut(span.start().as_ptr(), span.len_bytes()) })
    }
}
