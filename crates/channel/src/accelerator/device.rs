//! A device in use, and whether it can be used any more.

use super::{Direction, Interop, PciPlace};
use crate::{Channel, HostSpan};
use model::{ChannelError, ChannelErrorKind, MemoryId};
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::{Debug, Display};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// What keeps the memory of a region valid.
pub type Owner = Arc<dyn Any + Send + Sync>;

/// A device in use, by whatever API: what it allocates, and the channels that it has.
pub trait Device: Debug + Send + Sync {
    /// What it is called in errors, and whether it is lost.
    fn health(&self) -> &Arc<Health>;

    /// What it says of itself.
    fn profile(&self) -> Profile;

    /// At least `len_bytes` bytes of the device's memory, all zero: what a [`super::Copier`] of its
    /// channels finds behind a region. Blocks until they are zero.
    ///
    /// # Errors
    /// [`ChannelErrorKind::OutOfMemory`], [`ChannelErrorKind::DeviceLost`] or what else the device says.
    fn allocate(&self, len_bytes: u64) -> Result<Owner, ChannelError>;

    /// At least `len_bytes` bytes of the host's memory that stay where they are, so that the device may
    /// reach them by itself. They hold anything, and nobody else has them.
    ///
    /// # Errors
    /// As [`Device::allocate`].
    fn pin(&self, len_bytes: u64) -> Result<(HostSpan, Owner), ChannelError>;

    /// A channel with nothing in flight, of one of the kinds that the device has, that spreads its
    /// commands over so many queues, at least one; over as many as suit the API where that is left open.
    ///
    /// # Errors
    /// What the device says where it makes no queue, or is lost; [`ChannelErrorKind::Io`] when the
    /// process has no descriptor left.
    fn channel(
        &self,
        direction: Direction,
        queues: Option<usize>,
    ) -> Result<Box<dyn Channel>, ChannelError>;

    /// Has other libraries find the device on this thread, from now on, where its API has that be a thread's own
    /// matter: until the thread is bound to another, or the last clone of the device is gone.
    fn bind_thread(&self) {}

    /// What other libraries of the process may share with it, where its API has addresses.
    fn interop(&self) -> Option<&dyn Interop> {
        None
    }
}

/// What a device says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// Tells it from devices that copy at other rates.
    pub key: String,
    /// Where it is, if it says so.
    pub place: Option<PciPlace>,
    /// How much memory it has.
    pub memory_bytes: u64,
    /// The largest region that it allocates.
    pub most_bytes: u64,
    /// Whether its memory is the host's.
    pub shares_host_memory: bool,
    /// Whether it takes kernels that convert layouts, and so has a channel for
    /// [`Direction::Convert`]. That these can be made is seen when they first are.
    pub converts: bool,
    /// Which host memory they reach, and so whether it has channels for [`Direction::ConvertWrite`] and
    /// [`Direction::ConvertRead`].
    pub reach: Reach,
}

impl Profile {
    /// Whether the device has a channel of this kind.
    #[must_use]
    pub fn has(&self, direction: Direction) -> bool {
        let is_reached = matches!(direction, Direction::Convert) || self.reach != Reach::Nothing;
        !direction.converts() || (self.converts && is_reached)
    }
}

/// Which host memory kernels of a device read and write where it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// None of it.
    Nothing,
    /// What the device itself has pinned.
    Own,
    /// What any device of its API has pinned.
    All,
}

/// What a device is called in errors, whether it is lost, and whether it has no kernels or does not reach some
/// memory of other processes or devices: for good, from the first error on that says so.
#[derive(Debug)]
pub struct Health {
    name: String,
    lost: OnceLock<String>,
    no_kernels: OnceLock<String>,
    unreached: Mutex<BTreeMap<MemoryId, String>>,
}

impl Health {
    /// That of a device which is not lost. `api` and `name` are what errors call it.
    #[must_use]
    pub fn new(api: &str, name: &str) -> Self {
        let [lost, no_kernels] = Default::default();
        let (name, unreached) = (format!("{api} device `{name}`"), Mutex::default());
        Health { name, lost, no_kernels, unreached }
    }

    /// What errors call the device.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the device is lost: it takes no more work, and allocates nothing.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.lost.get().is_some()
    }

    /// Refuses where the device is lost.
    ///
    /// # Errors
    /// [`ChannelErrorKind::DeviceLost`], with the reason that was told then.
    pub fn check(&self) -> Result<(), ChannelError> {
        let Some(why) = self.lost.get() else { return Ok(()) };
        let detail = format!("{} is lost, and takes no more work: {why}", self.name);
        Err(ChannelError::new(ChannelErrorKind::DeviceLost, detail))
    }

    /// Refuses what [`Health::check`] does, and conversions where there are no kernels for them.
    ///
    /// # Errors
    /// Likewise; [`ChannelErrorKind::Io`] for a conversion, with the reason that was told first.
    pub fn check_for(&self, direction: Direction) -> Result<(), ChannelError> {
        self.check()?;
        let why = self.no_kernels.get().filter(|_| direction.converts());
        let Some(why) = why else { return Ok(()) };
        let detail = format!("{} has no kernels, and converts nothing: {why}", self.name);
        Err(ChannelError::new(ChannelErrorKind::Io, detail))
    }

    /// Has the device convert nothing from now on, since it has no kernels.
    pub fn lose_kernels(&self, failure: impl Display) {
        // Only the first reason is of interest.
        let _ = self.no_kernels.set(failure.to_string());
    }

    /// Has nobody count on the device to reach `memory`, of another process or device, from now on.
    pub fn lose_reach(&self, memory: MemoryId, failure: impl Display) {
        let mut unreached = self.unreached.lock().unwrap_or_else(PoisonError::into_inner);
        // As in `lose_kernels`.
        unreached.entry(memory).or_insert_with(|| failure.to_string());
    }

    /// What memory of other processes and devices it was seen not to reach, and why.
    #[must_use]
    pub fn unreached(&self) -> BTreeMap<MemoryId, String> {
        self.unreached.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// `failure` as an error of this kind; one that says that the device is lost makes it so.
    pub fn failed(&self, kind: ChannelErrorKind, failure: impl Display) -> ChannelError {
        if kind == ChannelErrorKind::DeviceLost {
            // Only why it was lost first is of interest.
            let _ = self.lost.set(failure.to_string());
        }
        ChannelError::new(kind, format!("{}: {failure}", self.name))
    }

    /// Memory of the device, or near to it, that can't be had.
    #[must_use]
    pub fn no_memory(&self, len_bytes: u64, why: impl Display) -> ChannelError {
        let detail = format!("can't allocate {len_bytes} bytes for {}: {why}", self.name);
        ChannelError::new(ChannelErrorKind::OutOfMemory, detail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_that_loses_a_device_is_what_is_told_later() {
        let health = Health::new("Some", "a");
        let refused = health.failed(ChannelErrorKind::Io, "no such call");
        assert_eq!(refused.detail, "Some device `a`: no such call");
        assert_eq!((health.is_lost(), health.check()), (false, Ok(())));
        let first = health.failed(ChannelErrorKind::DeviceLost, "it fell");
        assert_eq!(first.detail, "Some device `a`: it fell");
        health.failed(ChannelErrorKind::DeviceLost, "it is gone");
        let later = health.check().unwrap_err();
        assert_eq!(later.kind, ChannelErrorKind::DeviceLost);
        assert_eq!(later.detail, "Some device `a` is lost, and takes no more work: it fell");
        assert!(health.is_lost());
    }

    #[test]
    fn a_device_has_the_channels_that_its_kernels_are_good_for() {
        let profile = |converts, reach| Profile {
            key: String::new(),
            place: None,
            memory_bytes: 1,
            most_bytes: 1,
            shares_host_memory: false,
            converts,
            reach,
        };
        for (profile, expected) in [
            (profile(false, Reach::All), 3),
            (profile(true, Reach::Nothing), 4),
            (profile(true, Reach::Own), 6),
            (profile(true, Reach::All), 6),
        ] {
            let has = Direction::ALL.map(|direction| profile.has(direction));
            assert_eq!(has, [0, 1, 2, 3, 4, 5].map(|n| n < expected), "{profile:?}");
        }
    }

    #[test]
    fn without_kernels_a_device_does_all_but_convert() {
        let health = Health::new("Some", "a");
        assert_eq!(health.check_for(Direction::Convert), Ok(()));
        health.lose_kernels("no compiler");
        health.lose_kernels("no compiler again");
        let (kernels, others) = Direction::ALL.iter().partition::<Vec<_>, _>(|way| way.converts());
        for &direction in kernels {
            let refused = health.check_for(direction).unwrap_err();
            assert_eq!(refused.kind, ChannelErrorKind::Io);
            let expected = "Some device `a` has no kernels, and converts nothing: no compiler";
            assert_eq!(refused.detail, expected);
        }
        assert_eq!(others, [&Direction::Write, &Direction::Read, &Direction::Copy]);
        assert!(others.iter().all(|&&direction| health.check_for(direction) == Ok(())));
        assert_eq!((health.is_lost(), health.check()), (false, Ok(())));
        health.failed(ChannelErrorKind::DeviceLost, "it fell");
        let lost = health.check_for(Direction::Convert).unwrap_err();
        assert_eq!(lost.kind, ChannelErrorKind::DeviceLost);
    }
}
