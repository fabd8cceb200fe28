//! Memory of devices that others put to where it is, over a network or in one machine: what comes in, as
//! registered memory of hosts is.

use super::{push_memory, staging_bytes};
use crate::builder::Settings;
use crate::discover::LARGEST_BUFFER_PARTS;
use channel::accelerator::{Device, FbmProvider};
use channel::{Provider, Region};
use model::{Channel, ChannelError, ChannelKind, MemoryKind, NodeClass};
use std::sync::Arc;

/// What such memory is called: as the device's own, and this.
const SUFFIX: &str = "_reg";

/// CUDA shares whole pages of this size with other processes, and so whatever else they would hold.
const PAGE_BYTES: u64 = 2 << 20;

/// Allocates room of a device for what other nodes put there, which is to be the next memory of `class`;
/// `None` where networks know no address of the device's memory.
///
/// # Errors
/// As [`Device::allocate`].
pub(crate) fn allocate(
    class: &NodeClass,
    device: &Arc<dyn Device>,
    settings: &Settings,
) -> Result<Option<Region>, ChannelError> {
    if device.interop().is_none() {
        return Ok(None);
    }
    let memory = settings.memory(u16::try_from(class.memories.len()).unwrap_or(u16::MAX));
    let provider = FbmProvider::new(memory, Arc::clone(device));
    let bytes = staging_bytes(&device.profile(), settings).next_multiple_of(PAGE_BYTES);
    provider.allocate(bytes, 1).map(Some)
}

/// Adds such room, of so many bytes, to the device whose memory is `own`: it copies and converts from there
/// as inside its own memory.
pub(crate) fn add(class: &mut NodeClass, own: u16, bytes: u64) {
    let name = format!("{}{SUFFIX}", class.memories[usize::from(own)].name);
    let sizes = (Some(bytes), Some(bytes / LARGEST_BUFFER_PARTS));
    let index = push_memory(class, name, MemoryKind::Fbm, sizes);
    let is_inside = |channel: &Channel| {
        let is_its = channel.from.contains(&own) && channel.to.contains(&own);
        is_its && matches!(channel.kind, ChannelKind::GpuCopy | ChannelKind::GpuConvert)
    };
    for channel in class.channels.iter_mut().filter(|channel| is_inside(channel)) {
        channel.from.push(index);
        channel.to.push(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accelerators::Full;
    use channel::accelerator::Reach;

    #[test]
    fn no_room_is_asked_of_a_device_whose_memory_has_no_addresses() {
        let (memories, channels, wires) = (Vec::new(), Vec::new(), Vec::new());
        let class =
            NodeClass { name: "node".to_owned(), first: 0, count: 1, memories, channels, wires };
        let device: Arc<dyn Device> = Arc::new(Full::new("a", true, Reach::Nothing));
        let room = allocate(&class, &device, &Settings::default());
        assert!(room.unwrap().is_none(), "it has none, and is not asked");
    }
}
