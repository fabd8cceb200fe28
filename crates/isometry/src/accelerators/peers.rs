//! What devices copy straight to each other, past the host.

use super::{Part, found};
use crate::builder::Settings;
use channel::accelerator::Device;
use model::{ChannelKind, NodeClass};
use std::fmt::Display;
use std::sync::Arc;

/// Adds a channel from each of `members`, which are devices of one API by their memories, to all of the others
/// that it copies straight to. It is measured to the first of them; where that fails, what promised to copy does
/// not, and there is none.
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
        let found = found(device, Part::Peers(first), settings);
        let Ok(rates) = found.inspect_err(|error| tell(device, error)) else { continue };
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
}

fn tell(device: &Arc<dyn Device>, why: &dyn Display) {
    log::warn!("{} copies to others by the host: {why}", device.health().name());
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
