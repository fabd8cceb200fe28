//! A device of the tests'.

use channel::accelerator::{Device, Direction, Health, Owner, Profile, Reach};
use channel::{Channel, HostSpan};
use channel_host::{Cores, MemcpyChannel, MemcpyConfig};
use model::ChannelError;
use std::sync::Arc;

/// A device without room.
#[derive(Debug)]
pub(crate) struct Full {
    health: Arc<Health>,
    converts: bool,
    reach: Reach,
}

impl Full {
    /// One of this name, which converts or not, and whose kernels reach so much of the host's memory.
    pub(crate) fn new(name: &str, converts: bool, reach: Reach) -> Self {
        Full { health: Arc::new(Health::new("Some", name)), converts, reach }
    }
}

impl Device for Full {
    fn health(&self) -> &Arc<Health> {
        &self.health
    }

    fn profile(&self) -> Profile {
        let (key, memory_bytes, most_bytes) = (String::new(), 1 << 30, 1 << 30);
        let (place, shares_host_memory, converts, reach) = (None, false, self.converts, self.reach);
        Profile { key, place, memory_bytes, most_bytes, shares_host_memory, converts, reach }
    }

    fn allocate(&self, len_bytes: u64) -> Result<Owner, ChannelError> {
        Err(self.health.no_memory(len_bytes, "it is full"))
    }

    fn pin(&self, len_bytes: u64) -> Result<(HostSpan, Owner), ChannelError> {
        Err(self.health.no_memory(len_bytes, "it is full"))
    }

    fn channel(
        &self,
        _direction: Direction,
        _queues: Option<usize>,
    ) -> Result<Box<dyn Channel>, ChannelError> {
        let config = MemcpyConfig::among(&Cores::detect(), 1);
        Ok(Box::new(MemcpyChannel::new(&config).expect("a thread")))
    }
}
