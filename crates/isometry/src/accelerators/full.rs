//! A device of the tests'.

use channel::accelerator::{Device, Direction, Health, Owner, Profile};
use channel::{Channel, HostSpan};
use channel_host::{Cores, MemcpyChannel, MemcpyConfig};
use model::ChannelError;

/// A device without room.
#[derive(Debug)]
pub(crate) struct Full(pub(crate) Health);

impl Device for Full {
    fn health(&self) -> &Health {
        &self.0
    }

    fn profile(&self) -> Profile {
        let (key, memory_bytes, most_bytes) = (String::new(), 1 << 30, 1 << 30);
        Profile { key, memory_bytes, most_bytes, shares_host_memory: false, converts: true }
    }

    fn allocate(&self, len_bytes: u64) -> Result<Owner, ChannelError> {
        Err(self.0.no_memory(len_bytes, "it is full"))
    }

    fn pin(&self, len_bytes: u64) -> Result<(HostSpan, Owner), ChannelError> {
        Err(self.0.no_memory(len_bytes, "it is full"))
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
