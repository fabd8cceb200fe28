//! Registered memory of a network (REG), as devices copy to it and from it: with channels of their own where their
//! API registers it too, and else like plain host memory.

use super::{Devices, Part, rates};
use crate::builder::Settings;
use channel::Region;
use channel::accelerator::{Device, Owner};
use model::{Channel, ChannelError, ChannelKind, MemoryKind, NodeClass};
use std::sync::Arc;

/// Registered memory, and whether an API of devices has registered it.
#[derive(Debug)]
pub(crate) struct Reached {
    pub(crate) region: Region,
    pub(crate) by_devices: bool,
}

/// Has the first of `devices` that may, and is not lost, register `segment` for all of its API.
pub(crate) fn reach(segment: Region, devices: &Devices) -> Reached {
    let (segment, all) = (Arc::new(segment), devices.all());
    let may = |device: &&Arc<dyn Device>| !device.health().is_lost() && device.interop().is_some();
    let first = all.iter().map(|(_, device)| device).find(may);
    let tell = |why: &ChannelError| {
        log::warn!("registered memory of a network is plain host memory to devices: {why}");
    };
    let registered = first.and_then(|device| registered(device.as_ref(), &segment));
    let found = registered.and_then(|registered| registered.inspect_err(tell).ok());
    let by_devices = found.is_some();
    Reached { region: found.unwrap_or_else(|| kept_by(&segment, segment.clone())), by_devices }
}

/// `host` as the API of `device` has registered it; `None` where that registers nothing.
pub(super) fn registered(
    device: &dyn Device,
    host: &Arc<Region>,
) -> Option<Result<Region, ChannelError>> {
    let owner = device.interop()?.register(host);
    Some(owner.map(|owner| kept_by(host, owner)))
}

/// The bytes of `host`, as long as `owner` lives, which keeps that.
fn kept_by(host: &Region, owner: Owner) -> Region {
    let span = host.host_span().expect("it is memory of the host");
    Region::host(host.memory(), span, owner)
}

/// A channel, with its number.
type Numbered = (u16, ChannelKind, Box<dyn channel::Channel>);

/// Has channels of `devices` join registered memory, number `reg` of `class`: returns those that are added for
/// that, of devices whose API has registered it.
pub(crate) fn join(
    class: &mut NodeClass,
    (reg, by_devices): (u16, bool),
    devices: &Devices,
    settings: &Settings,
) -> Vec<Numbered> {
    let mut added = Vec::new();
    for (own, device) in devices.all() {
        if by_devices && device.interop().is_some() {
            added.extend(add_channels(class, (own.index, reg), &device, settings));
        } else {
            join_plain(class, own.index, reg);
        }
    }
    added
}

/// Adds the channels between `reg` and the memory `own` of `device`, and returns them.
fn add_channels(
    class: &mut NodeClass,
    (own, reg): (u16, u16),
    device: &Arc<dyn Device>,
    settings: &Settings,
) -> Vec<Numbered> {
    let mut added = Vec::new();
    let writes = |channel: &&Channel| channel.to.contains(&own) && channel.wire.is_some();
    let wire = class.channels.iter().find(writes).and_then(|channel| channel.wire);
    let rates = rates(device, Part::Registered, settings);
    for rate in &rates.ways {
        let direction = rate.way.direction;
        match device.channel(direction, None) {
            Ok(channel) => {
                let side = |is_device| vec![if is_device { own } else { reg }];
                let ends = (side(direction.reads_device()), side(direction.writes_device()));
                let number = u16::try_from(class.channels.len()).unwrap_or(u16::MAX);
                added.push((number, rate.way.kind, channel));
                class.channels.push(Channel { wire, ..rate.channel(ends, rates.assumed) });
            }
            Err(error) => log::warn!("registered memory is not joined to an accelerator: {error}"),
        }
    }
    added
}

/// Has the channels between plain host memory and the memory `own` of a device join `reg` too.
fn join_plain(class: &mut NodeClass, own: u16, reg: u16) {
    let NodeClass { memories, channels, .. } = class;
    let is_plain = |end: &u16| memories[usize::from(*end)].kind == MemoryKind::Sys;
    for channel in channels {
        let (device, host) = match channel.kind {
            ChannelKind::GpuWrite => (&channel.to, &mut channel.from),
            ChannelKind::GpuRead => (&channel.from, &mut channel.to),
            _ => continue,
        };
        if device.contains(&own) && host.iter().any(is_plain) {
            host.push(reg);
        }
    }
}
