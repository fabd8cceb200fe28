//! Segments of ranks of one machine that meet by a network, which map each other's all the same.
//!
//! **Hazard.** What a rank calls a process or a descriptor is another one elsewhere, or a moment later.
//! **Guarantee.** What is mapped is the memory that its rank has made, or nothing is: puts and gets then go
//! by the network. **Structure.** A rank tells its [`Whereabouts`] as it joins; who finds them to be of its
//! own machine and namespaces opens the memory by way of `/proc`, and looks whether it is that.

use crate::error::Error;
use crate::segment::Segment;
use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, open, stat};
use std::fs::read_to_string;
use std::os::fd::{AsRawFd, OwnedFd};

/// The namespaces that have to be the same: `/proc/PID` is of one, and sockets are of another.
const NAMESPACES: [&str; 2] = ["/proc/self/ns/pid", "/proc/self/ns/net"];

/// Where memory lies, as processes of its machine find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Whereabouts {
    /// By which the system knows this start of the machine.
    boot: [u8; 16],
    namespaces: [u64; 2],
    process: u32,
    descriptor: u32,
    device: u64,
    inode: u64,
}

impl Whereabouts {
    /// How many bytes they are told in.
    pub(crate) const BYTES: usize = 56;

    /// Of the memory behind `fd`, while that is open; `None` where the system doesn't say.
    pub(crate) fn of(fd: &OwnedFd) -> Option<Whereabouts> {
        let Stat { st_dev: device, st_ino: inode, .. } = fstat(fd).ok()?;
        let descriptor = u32::try_from(fd.as_raw_fd()).ok()?;
        let (boot, namespaces) = this_machine()?;
        let process = std::process::id();
        Some(Whereabouts { boot, namespaces, process, descriptor, device, inode })
    }

    pub(crate) fn to_bytes(self) -> [u8; Whereabouts::BYTES] {
        let Whereabouts { boot, namespaces: [pid, net], process, descriptor, device, inode } = self;
        let mut bytes = [0; Whereabouts::BYTES];
        bytes[..16].copy_from_slice(&boot);
        let named = u64::from(process) << 32 | u64::from(descriptor);
        for (place, word) in bytes[16..].chunks_mut(8).zip([pid, net, named, device, inode]) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8; Whereabouts::BYTES]) -> Whereabouts {
        let (boot, words) = bytes.split_first_chunk().expect("there are more");
        let word =
            |at: usize| words[8 * at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let [process, descriptor] = [word(2) >> 32, word(2) & u64::from(u32::MAX)];
        Whereabouts {
            boot: *boot,
            namespaces: [word(0), word(1)],
            process: process as u32,
            descriptor: descriptor as u32,
            device: word(3),
            inode: word(4),
        }
    }

    /// Maps the memory, where it is that of a rank of this machine and has so many bytes.
    pub(crate) fn map(&self, bytes: u64) -> Option<Segment> {
        if this_machine()? != (self.boot, self.namespaces) {
            return None;
        }
        let tell = |error: &Error| log::debug!("the memory of a rank is not mapped: {error}");
        self.opened().inspect_err(tell).ok().filter(|segment| segment.bytes() == bytes)
    }

    fn opened(&self) -> Result<Segment, Error> {
        let failed = Error::os("opening the memory of a rank");
        let path = format!("/proc/{}/fd/{}", self.process, self.descriptor);
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

/// This start of the machine, and the namespaces of this process.
fn this_machine() -> Option<([u8; 16], [u64; 2])> {
    let text = read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let boot = u128::from_str_radix(&text.trim().replace('-', ""), 16).ok()?;
    let [pid, net] = NAMESPACES.map(|path| stat(path).map(|found| found.st_ino).ok());
    Some((boot.to_le_bytes(), [pid?, net?]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn memory_of_this_machine_is_found_and_is_the_same() {
        let (made, fd) = Segment::create(5000).unwrap();
        let there = Whereabouts::of(&fd).unwrap();
        assert_eq!(Whereabouts::from_bytes(&there.to_bytes()), there);
        let mapped = there.map(5000).unwrap();
        made.write(4990, &[1, 2, 3]).unwrap();
        let mut found = [0; 3];
        mapped.read(4990, &mut found).unwrap();
        assert_eq!(found, [1, 2, 3]);
        assert!(there.map(4999).is_none(), "of another size");
    }

    #[test]
    fn what_is_elsewhere_or_another_is_not_mapped() {
        let (_, fd) = Segment::create(64).unwrap();
        let (_, other) = Segment::create(64).unwrap();
        let there = Whereabouts::of(&fd).unwrap();
        let descriptor = Whereabouts::of(&other).unwrap().descriptor;
        let [pid, net] = there.namespaces;
        for wrong in [
            Whereabouts { descriptor, ..there },
            Whereabouts { boot: [7; 16], ..there },
            Whereabouts { namespaces: [pid + 1, net], ..there },
            Whereabouts { namespaces: [pid, net + 1], ..there },
            Whereabouts { process: 1, ..there },
            Whereabouts { descriptor: 1 << 30, ..there },
            Whereabouts { inode: there.inode + 1, ..there },
        ] {
            assert!(wrong.map(64).is_none(), "{wrong:?}");
        }
        drop(fd);
        assert!(there.map(64).is_none(), "it is closed");
    }

    proptest! {
        #[test]
        fn nothing_that_is_told_makes_it_panic(bytes in any::<[u8; 16]>(), words in any::<[u64; 5]>()) {
            let mut told = [0; Whereabouts::BYTES];
            told[..16].copy_from_slice(&bytes);
            for (place, word) in told[16..].chunks_mut(8).zip(words) {
                place.copy_from_slice(&word.to_le_bytes());
            }
            let there = Whereabouts::from_bytes(&told);
            prop_assert_eq!(there.to_bytes(), told);
            prop_assert!(there.map(64).is_none());
            let (boot, namespaces) = this_machine().unwrap();
            let here = Whereabouts { boot, namespaces, ..there };
            prop_assert!(here.map(64).is_none());
        }
    }
}
