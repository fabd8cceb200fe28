//! What devices copy straight to each other, past the host.

use super::{Part, rates};
use crate::builder::Settings;
use channel::accelerator::Device;
use model::{ChannelKind, NodeClass};
use std::sync::Arc;

/// Adds a channel from each of `members`, which are devices of one API by their memories, to all of the others
/// that it copies straight to. It is measured to the first of them.
pub(super) fn join(
    class: &mut NodeClass,
    members: &[(u16, &Arc<dyn Device>)],
    settings: &Settings,
    channels: &mut Vec<(ChannelKind, Box<dyn channel::Channel>)>,
) {
    for &(own, device) in members {
        let reached = |&&(memory, peer): &&(u16, &Arc<dyn Device>)| {
            memory != own && reaches(device.as_ref(), peer.as_ref())
        };
        let peers: Vec<_> = members.iter().filter(reached).collect();
        let Some(&&(_, first)) = peers.first() else { continue };
        let rates = rates(device, Part::Peers(first), settings);
        let to: Vec<_> = peers.iter().map(|(memory, _)| *memory).collect();
        for rate in &rates.ways {
            match device.channel(rate.way.direction, None) {
                Ok(channel) => {
                    class.channels.push(rate.channel((vec![own], to.clone()), rates.assumed));
                    channels.push((rate.way.kind, channel));
                }
                Err(error) => log::warn!("an accelerator copies to others by the host: {error}"),
            }
        }
    }
}

/// Whether `device` copies straight to `peer`; where that is refused, copies go by the host.
fn reaches(device: &dyn Device, peer: &dyn Device) -> bool {
    let Some(own) = device.interop() else { return false };
    let tell = |error| {
        let [device, peer] = [device, peer].map(|device| device.health().name());
        log::warn!("{device} copies to {peer} by the host: {error}");
    };
    own.reach(peer).map_err(tell).unwrap_or(false)
}
