//! Where memory of a rank lies, as processes of its machine find it.
//!
//! **Hazard.** What a rank calls a process or a descriptor is another one elsewhere, or a moment later.
//! **Guarantee.** What is mapped is the memory that its rank has made, or nothing is. **Structure.** A rank
//! tells its [`Whereabouts`] as it joins; who finds them to be of its own [`Machine`] opens the memory by way of
//! `/proc`, and looks whether it is that.

use crate::error::Error;
use crate::segment::Segment;
use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, open, stat};
use std::fs::read_to_string;
use std::os::fd::{AsRawFd, OwnedFd};

/// The namespaces that have to be the same: `/proc/PID` is of one, and sockets are of another.
const NAMESPACES: [&str; 2] = ["/proc/self/ns/pid", "/proc/self/ns/net"];

/// A machine, as a process of it sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Machine {
    /// By which the system knows this start of it.
    pub(super) boot: [u8; 16],
    pub(super) namespaces: [u64; 2],
}

impl Machine {
    /// This process's; `None` where the system doesn't say.
    pub(crate) fn this() -> Option<Machine> {
        let text = read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let boot = u128::from_str_radix(&text.trim().replace('-', ""), 16).ok()?;
        let [pid, net] = NAMESPACES.map(|path| stat(path).map(|found| found.st_ino).ok());
        Some(Machine { boot: boot.to_le_bytes(), namespaces: [pid?, net?] })
    }

    pub(crate) fn to_bytes(self) -> [u8; 32] {
        let Machine { boot, namespaces: [pid, net] } = self;
        let mut bytes = [0; 32];
        let words = [&boot[..], &pid.to_le_bytes(), &net.to_le_bytes()];
        bytes.copy_from_slice(&words.concat());
        bytes
    }
}

/// Where a rank's mailbox and segment lie, as processes of its machine find them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Whereabouts {
    pub(crate) machine: Machine,
    pub(super) process: u64,
    memory: [Place; 2],
}

/// Where one of them does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    descriptor: u64,
    device: u64,
    inode: u64,
}

impl Whereabouts {
    /// How many bytes they are told in.
    pub(crate) const BYTES: usize = 32 + 7 * 8;

    /// Of the memory behind these, while they are open; `None` where the system doesn't say.
    pub(crate) fn of(machine: Machine, fds: [&OwnedFd; 2]) -> Option<Whereabouts> {
        let process = std::process::id().into();
        let [mailbox, segment] = fds.map(Place::of);
        Some(Whereabouts { machine, process, memory: [mailbox?, segment?] })
    }

    pub(crate) fn to_bytes(self) -> [u8; Whereabouts::BYTES] {
        let Whereabouts { machine, process, memory } = self;
        let mut bytes = [0; Whereabouts::BYTES];
        bytes[..32].copy_from_slice(&machine.to_bytes());
        let place = |place: Place| [place.descriptor, place.device, place.inode];
        let words = [process].into_iter().chain(memory.into_iter().flat_map(place));
        for (place, word) in bytes[32..].chunks_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8; Whereabouts::BYTES]) -> Whereabouts {
        let (boot, words) = bytes.split_first_chunk().expect("there are more");
        let word =
            |at: usize| words[8 * at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let place = |at| Place { descriptor: word(at), device: word(at + 1), inode: word(at + 2) };
        Whereabouts {
            machine: Machine { boot: *boot, namespaces: [word(0), word(1)] },
            process: word(2),
            memory: [place(3), place(6)],
        }
    }

    /// Maps the memory, where it is that of a rank of this machine.
    pub(crate) fn map(&self) -> Option<[Segment; 2]> {
        let tell = |error: &Error| log::debug!("the memory of a rank is not mapped: {error}");
        let [mailbox, segment] = self.memory;
        let map = || Ok([mailbox.map(self.process)?, segment.map(self.process)?]);
        map().inspect_err(tell).ok()
    }
}

impl Place {
    fn of(fd: &OwnedFd) -> Option<Place> {
        let Stat { st_dev: device, st_ino: inode, .. } = fstat(fd).ok()?;
        let descriptor = u64::try_from(fd.as_raw_fd()).ok()?;
        Some(Place { descriptor, device, inode })
    }

    fn map(&self, process: u64) -> Result<Segment, Error> {
        let failed = Error::os("opening the memory of a rank");
        let path = format!("/proc/{process}/fd/{}", self.descriptor);
        // Looked at first: to open something else could do something.
        self.check(&stat(&path).map_err(&failed)?)?;
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let fd = open(&path, flags, Mode::empty()).map_err(&failed)?;
        self.check(&fstat(&fd).map_err(&failed)?)?;
        Segment::map(&fd)
    }

    fn check(&self, found: &Stat) -> Result<(), Error> {
        let is_it = (found.st_dev, found.st_ino) == (self.device, self.inode);
        match is_it && FileType::from_raw_mode(found.st_mode) == FileType::RegularFile {
            true => Ok(()),
            false => Err(Error::Refused { rank: u32::MAX, why: "its memory is not where it said" }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn memory_of_this_machine_is_found_and_is_the_same() {
        let all = [5000, 64].map(|bytes| Segment::create(bytes).unwrap());
        let machine = Machine::this().unwrap();
        let there = Whereabouts::of(machine, all.each_ref().map(|(_, fd)| fd)).unwrap();
        assert_eq!(Whereabouts::from_bytes(&there.to_bytes()), there);
        for ((made, _), mapped) in all.iter().zip(there.map().unwrap()) {
            assert_eq!(mapped.bytes(), made.bytes());
            made.write(60, &[1, 2, 3]).unwrap();
            let mut found = [0; 3];
            mapped.read(60, &mut found).unwrap();
            assert_eq!(found, [1, 2, 3]);
        }
    }

    #[test]
    fn what_is_another_is_not_mapped() {
        let [first, second, other] = [0; 3].map(|_| Segment::create(64).unwrap().1);
        let there = Whereabouts::of(Machine::this().unwrap(), [&first, &second]).unwrap();
        let place = there.memory[1];
        let with = |second| Whereabouts { memory: [there.memory[0], second], ..there };
        let descriptor = Place::of(&other).unwrap().descriptor;
        for wrong in [
            with(Place { descriptor, ..place }),
            with(Place { descriptor: 1 << 30, ..place }),
            with(Place { inode: place.inode + 1, ..place }),
            Whereabouts { process: 1, ..there },
        ] {
            assert!(wrong.map().is_none(), "{wrong:?}");
        }
        drop(first);
        assert!(there.map().is_none(), "it is closed");
    }

    proptest! {
        #[test]
        fn nothing_that_is_told_makes_it_panic(bytes in any::<[u8; 16]>(), words in any::<[u64; 9]>()) {
            let mut told = [0; Whereabouts::BYTES];
            told[..16].copy_from_slice(&bytes);
            for (place, word) in told[16..].chunks_mut(8).zip(words) {
                place.copy_from_slice(&word.to_le_bytes());
            }
            let there = Whereabouts::from_bytes(&told);
            prop_assert_eq!(there.to_bytes(), told);
            prop_assert!(Machine::this() != Some(there.machine) && there.map().is_none());
        }
    }
}
