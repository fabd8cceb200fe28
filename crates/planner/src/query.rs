//! What is asked of the planner.

use crate::{Load, PlanError};
use model::{Algorithm, CostModel, Layout, MAX_DIMS, MemoryId};

/// One end of a transfer: how the instance lies there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct End<'a> {
    /// The memory.
    pub memory: MemoryId,
    /// The layout, over the dimensions of the copied box.
    pub layout: &'a Layout,
    /// For each dimension, where the box starts in the dimension's outermost block; empty for 0
    /// everywhere.
    pub phase: &'a [u64],
    /// A bit for each dimension that is selected by an index list: runs don't reach across it.
    pub listed: u8,
    /// A bit for each dimension whose next index doesn't follow what is faster: likewise.
    pub gaps: u8,
}

/// A transfer to plan: a box of entries, in one layout at the source and in one at the
/// destination. Everything that a plan depends on besides the topology and the options.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Query<'a> {
    /// Where the data is.
    pub src: End<'a>,
    /// Where it goes.
    pub dst: End<'a>,
    /// The extents of the box, in the order of the index space.
    pub extents: &'a [u64],
    /// The sizes of the fields.
    pub field_bytes: &'a [u64],
    /// What other transfers use meanwhile.
    pub load: &'a Load,
}

impl<'a> Query<'a> {
    /// A whole instance to a whole instance on an idle cluster: phase 0, no index lists.
    #[must_use]
    pub fn whole(
        src: (MemoryId, &'a Layout),
        dst: (MemoryId, &'a Layout),
        extents: &'a [u64],
        field_bytes: &'a [u64],
    ) -> Self {
        let end = |(memory, layout)| End { memory, layout, phase: &[], listed: 0, gaps: 0 };
        Query { src: end(src), dst: end(dst), extents, field_bytes, load: Load::IDLE }
    }

    /// The payload in bytes, held at the largest `u64`.
    #[must_use]
    pub fn payload_bytes(&self) -> u64 {
        let fields = self.field_bytes.iter().fold(0u64, |a, &b| a.saturating_add(b));
        self.extents.iter().fold(fields, |a, &x| a.saturating_mul(x))
    }

    pub(crate) fn check(&self) -> Result<(), PlanError> {
        let wrong = |why| Err(PlanError::Query { why });
        let rank = self.extents.len();
        if rank == 0 || rank > MAX_DIMS {
            return wrong("1 to 8 dimensions are needed");
        }
        if self.field_bytes.is_empty() || self.field_bytes.contains(&0) {
            return wrong("at least one field is needed, and none of size 0");
        }
        for end in [&self.src, &self.dst] {
            if !end.phase.is_empty() && end.phase.len() != rank {
                return wrong("a phase is needed for each dimension, or for none");
            }
            if !has_rank(end.layout, rank) {
                return wrong("a layout has other dimensions than the box");
            }
        }
        Ok(())
    }
}

/// Whether `layout` speaks of exactly the dimensions below `rank`.
fn has_rank(layout: &Layout, rank: usize) -> bool {
    let dims = layout.components().iter().filter_map(|c| c.dim());
    let seen = dims.fold(0u32, |seen, dim| seen | 1 << dim.min(31));
    seen == (1 << rank) - 1
}

/// Which algorithm plans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Choice {
    /// The full algorithm from [`Options::threshold_bytes`] of payload, the simple one below.
    #[default]
    Auto,
    /// This one.
    Only(Algorithm),
}

/// How to plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Options {
    /// Which algorithm.
    pub choice: Choice,
    /// What a prediction counts.
    pub model: CostModel,
    /// `TH` in place of the topology's; a memory whose own is less keeps that.
    pub th_bytes: Option<u64>,
    /// Where [`Choice::Auto`] changes to the full algorithm (paper, section 4.4: 16 MB).
    pub threshold_bytes: u64,
    /// The most pairs of a path and layouts that the full algorithm solves; it visits at most 8
    /// times as many paths, and walks at most 12 hops for each of these, dead ends included.
    /// `None` for one in each 512 KiB of payload, from 32 to 20,000, so that planning stays a
    /// small part of the transfer.
    pub budget: Option<u64>,
    /// The most alternatives that a plan names.
    pub alternatives: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            choice: Choice::Auto,
            model: CostModel::Default,
            th_bytes: None,
            threshold_bytes: 16 << 20,
            budget: None,
            alternatives: 3,
        }
    }
}

impl Options {
    /// The search budget for a payload of `bytes`.
    #[must_use]
    pub fn budget_for(&self, bytes: u64) -> u64 {
        self.budget.unwrap_or((bytes >> 19).clamp(32, 20_000))
    }

    /// The algorithm for a payload of `bytes`.
    #[must_use]
    pub fn algorithm(&self, bytes: u64) -> Algorithm {
        match self.choice {
            Choice::Only(algorithm) => algorithm,
            Choice::Auto if bytes >= self.threshold_bytes => Algorithm::Full,
            Choice::Auto => Algorithm::Simple,
        }
    }
}
