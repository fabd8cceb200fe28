//! Memory of devices that a network reaches where it is: what comes in, as registered memory of hosts is.

use super::{push_memory, staging_bytes};
use crate::builder::Settings;
use crate::discover::LARGEST_BUFFER_PARTS;
use channel::accelerator::{Device, FbmProvider};
use channel::{Provider, Region};
use model::{Channel, ChannelError, ChannelKind, MemoryKind, NodeClass};
use std::sync::Arc;

/// What such memory is called: as the device's own, and this.
const SUFFIX: &str = "_reg";

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
    let memory = settings.memory(u16::try_from(class.memories.len()).unwrap_or(u16::MAX));
    let provider = FbmProvider::new(memory, Arc::clone(device));
    let region = provider.allocate(staging_bytes(&device.profile(), settings), 1)?;
    Ok(region.device_span().is_some().then_some(region))
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
