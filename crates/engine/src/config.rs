//! How an engine is set up.

use crate::peer::PeerConfig;
use crate::policy::{ByPriority, Policy};
use model::{ChannelId, MemoryId, RegionId};
use std::sync::Arc;
use std::time::Duration;

/// One channel that the engine gives requests to.
#[derive(Debug, Clone)]
pub struct ChannelConfig {
    /// Names it in plans and requests.
    pub id: ChannelId,
    /// The most requests out at once, from measurement; at least 1.
    pub max_in_flight: u32,
    /// What its worker serves next.
    pub policy: Arc<dyn Policy>,
}

impl ChannelConfig {
    /// A channel that is served by priority.
    #[must_use]
    pub fn new(id: ChannelId, max_in_flight: u32) -> Self {
        ChannelConfig { id, max_in_flight, policy: Arc::new(ByPriority) }
    }
}

/// The staging of one memory: one region, of which the engine hands out parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolConfig {
    /// The memory.
    pub memory: MemoryId,
    /// The region; its first `capacity_bytes` are the engine's alone. It starts at a multiple of
    /// 4096 bytes where direct I/O is to reach it.
    pub region: RegionId,
    /// How much of the region is staging.
    pub capacity_bytes: u64,
    /// How much of that is kept for transfers more urgent than one that holds staging here. A
    /// ring larger than what remains is given out only when nothing else is.
    pub reserve_bytes: u64,
}

/// Everything that an engine is told at its construction.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// The channels; their order means nothing.
    pub channels: Vec<ChannelConfig>,
    /// The staging pools, at most one for each memory.
    pub pools: Vec<PoolConfig>,
    /// The most transfers known at once, ended ones that were not forgotten and shares of other
    /// nodes' transfers included. Where it is reached, [`crate::Engine::submit`] refuses with
    /// [`crate::SubmitError::Full`], and shares are refused with [`model::ChannelErrorKind::Busy`];
    /// of these, the ones with something to undo are known for as long as that takes.
    pub max_transfers: u32,
    /// When set, descriptors that have waited for a channel this long get at most 5% of it,
    /// whatever its policy says.
    pub ageing: Option<Duration>,
    /// Which node this is, where there are others. Transfers whose plans have channels that are not
    /// here are asked of them; without, such plans are refused.
    pub peers: Option<PeerConfig>,
}

impl EngineConfig {
    /// The limit on transfers unless another is given.
    pub const MAX_TRANSFERS: u32 = 1 << 20;

    /// These channels and pools, no ageing.
    #[must_use]
    pub fn new(channels: Vec<ChannelConfig>, pools: Vec<PoolConfig>) -> Self {
        let max_transfers = Self::MAX_TRANSFERS;
        EngineConfig { channels, pools, max_transfers, ageing: None, peers: None }
    }
}
