//! What shares lines of the destination at both ends of its rows.
//!
//! **Hazard.** Where a destination starts inside of a line, as what an allocator gives often does, no panel writes
//! whole lines. **Structure.** The loop along which lines are made is cut where they begin: what lies between is moved
//! as if it had started on one, and both ends, of less than a line each, into the caches.

use crate::Stores;
use crate::nest::Nest;
use crate::vector::{Abilities, LANE_BYTES, LINE_BYTES};

/// Of shorter rows both ends would take longer than is won; in the caches of half as long ones, where there is more than
/// twice the least that is worth it there: of less, a first-level cache takes parts of two lines sooner.
const LEAST_BYTES: usize = 8 * LINE_BYTES;
const LEAST_IN_CACHES: usize = if cfg!(test) { 4 << 10 } else { 64 << 10 };

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
    /// How long rows have to be that are cut, if the address `dst`, where `nest` has its first element, is inside of a line,
    /// and there is enough. In the caches it does not matter what is inside of a line, as long as vectors have no parts
    /// of two; vectors of a fourth of a line seldom do.
    pub(crate) fn least(
        nest: &Nest,
        dst: usize,
        (stores, by): (Stores, Abilities),
    ) -> Option<usize> {
        let vector = by.lanes * LANE_BYTES;
        let all = || nest.loops().iter().map(|l| l.count).product::<usize>() * nest.bytes;
        match stores {
            Stores::Streamed => (!dst.is_multiple_of(LINE_BYTES)).then_some(LEAST_BYTES),
            Stores::Cached if dst.is_multiple_of(vector) || 2 * vector < LINE_BYTES => None,
            Stores::Cached => match all() / LEAST_IN_CACHES {
                0 => None,
                1 => Some(LEAST_BYTES),
                _ => Some(LEAST_BYTES / 2),
            },
        }
    }

    /// Where `nest`, whose first element goes to the address `dst`, may be cut, loop by loop, for rows of at `least` so
    /// many bytes.
    pub(crate) fn each(nest: &Nest, dst: usize, least: usize) -> impl Iterator<Item = Ends> {
        let into = dst % LINE_BYTES;
        nest.loops().iter().enumerate().filter_map(move |(k, l)| {
            let step = usize::try_from(l.dst).ok().filter(|step| (1..LINE_BYTES).contains(step))?;
            let fits = l.is_plain() && step.is_power_of_two() && into.is_multiple_of(step);
            let before = (LINE_BYTES - into) / step;
            let turns = l.count.checked_sub(before)?;
            let whole = turns - turns % (LINE_BYTES / step);
            (fits && whole * step >= least).then_some(Ends { k, before, whole })
        })
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
