//! Room of this node's devices that others put to where it is.
//!
//! It is made once another node has devices to put there from, and stays until this node leaves. Whoever hears of
//! it may have this node put to rooms of its own at once, so the link is there before.

use super::known::{Change, OnDevice, Rooms};
use super::{Nodes, topology};
use crate::Error;
use crate::accelerators::registered;
use crate::builder::pool_of;
use crate::runtime::{NewChannel, Shared};
use channel::accelerator::Device;
use channel::{Channel, Regions};
use channel_remote::{DeviceLink, RemoteChannel};
use model::{ChannelKind, MemoryId, NodeClass, RegionId};
use std::io;
use std::sync::Arc;

impl Shared {
    /// Makes room of devices for what others put there, where there is another node that would and none was made
    /// before, and tells all. What is closed makes none, and none any more once it withdraws them.
    pub(crate) fn open_rooms(&self) {
        let Some(nodes) = self.nodes.as_deref().filter(|_| !self.is_closed()) else { return };
        let (_changing, mut class) = self.class_to_change();
        if !nodes.begins_to_need_rooms() {
            return;
        }
        if let Err(error) = self.add_link(nodes) {
            return log::warn!("no devices of other nodes are reached where they are: {error}");
        }
        let open = |(own, device): (MemoryId, Arc<dyn Device>)| {
            let opened = self.open_room(nodes, &mut class, (own, &device));
            let tell = |why: &Error| {
                log::warn!("other nodes don't reach {} where it is: {why}", device.health().name());
            };
            opened.inspect_err(tell).ok().flatten()
        };
        let devices = self.devices().all().into_iter().take_while(|_| !nodes.has_withdrawn());
        let rooms = Some(devices.filter_map(open).collect());
        self.change(class, Change { rooms, ..Change::default() });
    }

    /// Drives the link from devices to such of others: by the network, or by opening what these have exported.
    fn add_link(&self, nodes: &Nodes) -> io::Result<()> {
        let (fabric, devices) = (Arc::clone(&nodes.fabric), self.devices().all());
        let devices = devices.into_iter().filter(|(_, device)| device.interop().is_some());
        let channel: Box<dyn Channel> = match nodes.fabric.has_windows() {
            true => Box::new(RemoteChannel::of_devices(fabric, devices)?),
            false => Box::new(DeviceLink::new(fabric, devices)?),
        };
        let id = nodes.link(topology::LINK_OF_DEVICES);
        let config = self.settings().channel(id, ChannelKind::RemoteMemcpy);
        self.core().add_channels([NewChannel { config, channel, pinned: false }])?;
        self.channels_changed();
        Ok(())
    }

    /// Adds room of `device`, whose memory is `own`; `None` where that has no addresses.
    ///
    /// # Errors
    /// Where it can't be had, or others can't be let put there.
    fn open_room(
        &self,
        nodes: &Nodes,
        class: &mut NodeClass,
        (own, device): (MemoryId, &Arc<dyn Device>),
    ) -> Result<Option<OnDevice>, Error> {
        let Some(room) = registered::allocate(class, device, self.settings())? else {
            return Ok(None);
        };
        let (memory, bytes, region) = (room.memory(), room.len_bytes(), self.regions.insert(room));
        let opened = nodes.open_room((own, device), (&self.regions, region));
        let opened = opened.inspect_err(|_| drop(self.regions.revoke(region)))?;
        registered::add(class, own.index, bytes);
        self.devices().add_room(own, memory);
        self.core().add_pool(pool_of((memory, region, bytes)));
        nodes.open(region);
        Ok(Some(opened))
    }
}

impl Nodes {
    /// Whether there is another node now that would put to this one's devices, and was none before.
    fn begins_to_need_rooms(&self) -> bool {
        let mut known = self.known();
        let begins = known.needs_rooms(self.here());
        if begins {
            known.rooms = Rooms::Opened;
        }
        begins
    }

    /// Whether others are to put to this node's devices no more.
    fn has_withdrawn(&self) -> bool {
        self.known().rooms == Rooms::Withdrawn
    }

    /// Lets other nodes put to room of `device`, whose memory is `own`: through a window of the network's, or by
    /// opening it.
    ///
    /// # Errors
    /// As [`channel_remote::open_window`], and [`channel::accelerator::Interop::export`].
    fn open_room(
        &self,
        (own, device): (MemoryId, &Arc<dyn Device>),
        (regions, room): (&Regions, RegionId),
    ) -> Result<OnDevice, Error> {
        let there = regions.get(room).expect("it was just made");
        let place = (there.memory().index, room);
        if let Some(window) = channel_remote::open_window(&self.fabric, device, &there) {
            return Ok(OnDevice::in_window(own.index, place, window.map_err(Error::nodes)?));
        }
        let interop = device.interop().expect("what has addresses is shared");
        let handle = interop.export(&there)?.expect("it was allocated for this");
        Ok(OnDevice::exported(own.index, place, (there.len_bytes(), handle)))
    }
}
