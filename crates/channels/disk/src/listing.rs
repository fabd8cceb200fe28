//! The operations of a request, written down instead of carried out: for programs that make the
//! same ones without what a channel does beside them.

use crate::align::Bounds;
use crate::disk::ops_of;
use crate::file::FileRegion;
use crate::flight::Active;
use crate::pieces::Direction;
use channel::Job;
use channel::model::ChannelError;

/// One operation on a file, as the kernel is asked for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// Where it begins in the file, the file's header included.
    pub offset: u64,
    /// How many bytes it asks for; a read may ask for some beyond the file's end.
    pub bytes: u64,
    /// Whether it goes around the page cache.
    pub direct: bool,
}

/// The operations that a channel of this direction starts for `job`, in their order, provided
/// that the kernel carries out each of them whole. Nothing is read or written.
///
/// # Errors
/// As the completion of such a request.
pub fn operations(job: Job, direction: Direction) -> Result<Vec<Operation>, ChannelError> {
    let mut active = Active::begin(job, direction)?;
    let mut all = Vec::new();
    while let Some(plan) = active.next_plan(direction) {
        let around = active.file().and_then(FileRegion::direct).is_some();
        let direct = around && plan.bounds != Bounds::NONE;
        all.push(Operation { offset: plan.from, bytes: plan.to - plan.from, direct });
    }
    Ok(all)
}

/// The most operations that a channel of this depth has in flight.
#[must_use]
pub fn operations_at_once(depth: u32) -> u32 {
    ops_of(depth)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::{directory, memory, run_at};
    use crate::{Cache, FileRegion};
    use std::sync::Arc;

    #[test]
    fn a_write_off_the_boundaries_has_two_edges() {
        let dir = directory();
        let file = FileRegion::create(&dir.path().join("f"), &[], 1 << 20, Cache::Bypass).unwrap();
        let (around, phase) = (file.direct().is_some(), 100);
        let file = Arc::new(file.into_region(crate::common::DSK));
        let held = memory(&[1; 100_000], phase);
        let job = run_at(0, 100_000, (&held, 0), (&file, phase as u64));
        let made = operations(job, Direction::Write).unwrap();
        let one = |offset, bytes, direct| Operation { offset, bytes, direct };
        let expected = match around {
            true => vec![one(100, 3996, false), one(4096, 94_208, true), one(98_304, 1796, false)],
            false => vec![one(100, 100_000, false)],
        };
        assert_eq!(made, expected);
    }

    #[test]
    fn what_a_channel_refuses_is_refused() {
        let (from, to) = (memory(&[0; 8], 0), memory(&[0; 8], 0));
        assert!(operations(run_at(0, 8, (&from, 0), (&to, 0)), Direction::Read).is_err());
    }
}
