//! What shares lines of the destination at both ends of its rows.
//!
//! **Hazard.** Where a destination starts inside of a line, as what an allocator gives often does, no panel writes
//! whole lines. **Structure.** The loop along which lines are made is cut where they begin: what lies between is moved
//! as if it had started on one, and both ends, of less than a line each, into the caches.

use crate::nest::Nest;
use crate::vector::LINE_BYTES;

/// Of shorter rows both ends would take longer than is won.
const LEAST_BYTES: usize = 16 * LINE_BYTES;

/// Where a loop of a nest is cut.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ends {
    /// Which of its loops.
    k: usize,
    /// How many turns before lines begin.
    before: usize,
    /// And how many of whole lines.
    whole: usize,
}

impl Ends {
    /// Where `nest`, whose first element goes to the address `dst`, is cut, if all that keeps it from whole lines is
    /// where these begin.
    pub(crate) fn of(nest: &Nest, dst: usize) -> Option<Ends> {
        let loops = nest.loops();
        let (k, step) = loops.iter().enumerate().find_map(|(k, l)| {
            let step = usize::try_from(l.dst).ok().filter(|step| (1..LINE_BYTES).contains(step))?;
            (l.is_plain() && step.is_power_of_two() && fills(nest, k, step)).then_some((k, step))
        })?;
        let into = dst % LINE_BYTES;
        let before = (LINE_BYTES - into) / step;
        let turns = loops[k].count.checked_sub(before)?;
        let whole = turns - turns % (LINE_BYTES / step);
        let fits = into > 0 && into.is_multiple_of(step) && whole * step >= LEAST_BYTES;
        fits.then_some(Ends { k, before, whole })
    }

    /// What is whole lines.
    pub(crate) fn middle<'a>(&self, nest: &Nest<'a>) -> Nest<'a> {
        nest.turns(self.k, self.before..self.before + self.whole)
    }

    /// What is before and what behind it, of which the latter may be nothing.
    pub(crate) fn outside<'a>(&self, nest: &Nest<'a>) -> impl Iterator<Item = Nest<'a>> {
        let parts = [0..self.before, self.before + self.whole..nest.loops()[self.k].count];
        let (nest, k) = (*nest, self.k);
        parts.into_iter().filter(|part| !part.is_empty()).map(move |part| nest.turns(k, part))
    }
}

/// Whether each turn of the loops but `k`, whose own are `step` apart, goes on by whole lines, or stays between two of
/// its turns.
fn fills(nest: &Nest, k: usize, step: usize) -> bool {
    let mut inside = nest.bytes;
    let others = nest.loops().iter().enumerate().filter(|&(i, _)| i != k);
    others.into_iter().all(|(_, l)| {
        let apart = l.dst.unsigned_abs();
        inside += if apart < step { apart * (l.count - 1) } else { 0 };
        apart % LINE_BYTES == 0 || l.dst > 0 && l.is_plain() && inside <= step
    })
}
