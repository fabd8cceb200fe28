//! What devices copy straight to each other, past the host.

use super::{Part, found};
use crate::builder::Settings;
use channel::accelerator::Device;
use model::{ChannelError, ChannelKind, NodeClass};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;

/// Devices of one API by their memories.
type Members<'a> = [(u16, &'a Arc<dyn Device>)];

/// Adds channels from each of `members` to all of the others that it copies straight to: one for all that are
/// as near, by the ranks of their links.
pub(super) fn join(
    class: &mut NodeClass,
    members: &Members<'_>,
    settings: &Settings,
    channels: &mut Vec<(ChannelKind, Box<dyn channel::Channel>)>,
) {
    for &own in members {
        let mut by_link: BTreeMap<i32, Vec<_>> = BTreeMap::new();
        for &peer in members.iter().filter(|peer| peer.0 != own.0) {
            if let Some(link) = link(own.1.as_ref(), peer.1.as_ref()) {
                by_link.entry(link).or_default().push(peer);
            }
        }
        for peers in by_link.values() {
            add(class, own, peers, settings, channels);
        }
    }
}

/// Adds a channel from a device to `peers`, which are as near to it. It is measured to the first of them; where
/// that fails, what promised to copy does not, and there is none.
fn add(
    class: &mut NodeClass,
    (own, device): (u16, &Arc<dyn Device>),
    peers: &Members<'_>,
    settings: &Settings,
    channels: &mut Vec<(ChannelKind, Box<dyn channel::Channel>)>,
) {
    let Some((_, first)) = peers.first() else { return };
    let found = found(device, Part::Peers(first), settings);
    let Ok(rates) = found.inspect_err(|error| tell(device, error)) else { return };
    let to: Vec<_> = peers.iter().map(|(memory, _)| *memory).collect();
    for rate in &rates.ways {
        match device.channel(rate.way.direction, None) {
            Ok(channel) => {
                class.channels.push(rate.channel((vec![own], to.clone()), rates.assumed));
                channels.push((rate.way.kind, channel));
            }
            Err(error) => tell(device, &error),
        }
    }
}

fn tell(device: &Arc<dyn Device>, why: &dyn Display) {
    log::warn!("{} copies to others by the host: {why}", device.health().name());
}

/// The rank of the link by which `device` copies straight to `peer`; where that is refused, copies go by the host.
fn link(device: &dyn Device, peer: &dyn Device) -> Option<i32> {
    let own = device.interop()?;
    let tell = |error: &ChannelError| {
        let [device, peer] = [device, peer].map(|device| device.health().name());
        log::warn!("{device} copies to {peer} by the host: {error}");
    };
    own.reach(peer).inspect_err(tell).ok().flatten()
}
