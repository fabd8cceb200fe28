//! How a workload runs.

use planner::Choice;

/// What is taken away, by name, for comparison. The engine, the channels and the wires are the
/// same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Baseline {
    /// As a runtime whose DMA threads do one direct copy at a time (Legion over Realm; paper,
    /// sections 5.1 and 6.1): each hop starts when the one before has ended, with whole instances
    /// between, on the path with the fewest hops through the host memories that hold the most;
    /// intermediates have the source's layout, so that the last hop converts (the paper does not
    /// say where). On each node at most [`Setup::dma_threads`] hops run at once, the most urgent
    /// first and none interrupted; those on one channel share it by bytes.
    StoreAndForward,
    /// The planner's path and layouts, hop by hop with whole instances between.
    NoPipeline,
    /// The path and layouts of [`Baseline::StoreAndForward`], pipelined.
    NoPath,
    /// A fixed path, pipelined, whose hop at the device converts (MVAPICH2-GPU; section 6.4, which
    /// does not say where): the fewest hops through registered memory, from FBM to FBM* `FBM`,
    /// `REG`, `REG*`, `FBM*`. The last hop converts, or the first where only that is at a device.
    DeviceConverts,
    /// The planner's path and layouts, pipelined, one request at a time on each channel: latencies
    /// don't overlap.
    OneInFlight,
}

impl Baseline {
    /// All of them.
    pub const ALL: [Baseline; 5] = [
        Baseline::StoreAndForward,
        Baseline::NoPipeline,
        Baseline::NoPath,
        Baseline::DeviceConverts,
        Baseline::OneInFlight,
    ];

    /// The name in text.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Baseline::StoreAndForward => "store-and-forward",
            Baseline::NoPipeline => "no-pipeline",
            Baseline::NoPath => "no-path",
            Baseline::DeviceConverts => "device-converts",
            Baseline::OneInFlight => "one-in-flight",
        }
    }
}

/// How a workload runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setup {
    /// Which algorithm plans, in the default model. Baselines with a path of their own have no
    /// use for it.
    pub choice: Choice,
    /// What is taken away.
    pub baseline: Option<Baseline>,
    /// DMA threads of each node, for [`Baseline::StoreAndForward`]; 0 counts as 1.
    pub dma_threads: u32,
    /// Each copy is planned when it is launched, beside the transfers that have begun and not ended
    /// and are no less urgent; else as on an idle cluster. Baselines have no use for it.
    pub load: bool,
    /// A transfer is split over at most so many disjoint paths, where that is predicted to be
    /// sooner; 0 counts as 1. Baselines have no use for it.
    pub paths: usize,
}

impl Setup {
    /// Whether copies are planned beside what is under way.
    pub(crate) fn counts_load(&self) -> bool {
        self.load && self.baseline.is_none()
    }

    /// On how many paths a copy goes at most.
    pub(crate) fn most_paths(&self) -> usize {
        if self.baseline.is_none() { self.paths.max(1) } else { 1 }
    }
}

impl Default for Setup {
    fn default() -> Self {
        Setup { choice: Choice::Auto, baseline: None, dma_threads: 1, load: false, paths: 1 }
    }
}
