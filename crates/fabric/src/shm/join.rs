//! Processes of one machine meet at names in the abstract namespace, and hand over descriptors of
//! their memory and of themselves. Rank `r` listens at a name of its own and connects to all below it, and
//! goes on listening where others may come later; these are told by rank 0, at a name beside, which ranks
//! they are. The socket stays open: its end tells of the peer's.

use crate::config::Config;
use crate::error::Error;
use crate::meeting::{Entry, Met, Socket, Way, call_there, enter, meet};
use crate::process::Process;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    recvmsg, sendmsg, socket_with,
};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::time::Duration;

/// Its mailbox and its segment.
pub(crate) type Memory<T> = [T; 2];

/// That, and its process (a pidfd) where the system has such things.
pub(crate) type Gift = (Memory<OwnedFd>, Option<OwnedFd>);

/// What a rank has that has met others.
pub(crate) struct Joining {
    pub(crate) peers: Met<Gift>,
    pub(crate) way: Handing,
    /// Where it listens, unless it is alone.
    pub(crate) listener: Option<UnixListener>,
    /// Where rank 0 listens besides, if others may come later.
    pub(crate) root: Option<UnixListener>,
}

/// Joins all ranks but this one, to which `memory` is handed.
pub(crate) fn join(config: &Config, name: &str, memory: Memory<OwnedFd>) -> Result<Joining, Error> {
    let way = Handing::new(name, memory);
    if config.capacity == 1 {
        return Ok(Joining { peers: Met::new(), way, listener: None, root: None });
    }
    let listener = way.listen(config.rank)?;
    let is_root = config.is_open() && config.rank == 0;
    let root = is_root.then(|| listen(&root_of(name), 0)).transpose()?;
    let callers = config.rank + 1..config.size;
    let peers = meet(config, &way, 0..config.rank, (Some(listener.as_fd()), callers))?;
    Ok(Joining { peers, way, listener: Some(listener), root })
}

/// Has rank 0 say which rank this one is, that comes later.
pub(crate) fn come_to(config: &Config, name: &str) -> Result<Entry, Error> {
    enter(config, |most| connect(&root_of(name), most), |_| Ok(Vec::new()))
}

/// Joins those that are there as `entry` says, with the `config` that it says.
pub(crate) fn join_there(
    config: &Config,
    name: &str,
    (memory, entry): (Memory<OwnedFd>, &Entry),
) -> Result<Joining, Error> {
    let way = Handing::new(name, memory);
    let listener = way.listen(config.rank)?;
    let peers = call_there(config, &way, entry)?;
    Ok(Joining { peers, way, listener: Some(listener), root: None })
}

/// How ranks hand their memory and themselves to each other.
#[derive(Debug)]
pub(crate) struct Handing {
    name: String,
    memory: Memory<OwnedFd>,
    process: Option<OwnedFd>,
}

impl Handing {
    fn new(name: &str, memory: Memory<OwnedFd>) -> Handing {
        Handing { name: name.to_owned(), memory, process: Process::own() }
    }

    fn name_of(&self, rank: u32) -> String {
        format!("{}-{rank}", self.name)
    }

    fn listen(&self, rank: u32) -> Result<UnixListener, Error> {
        listen(&self.name_of(rank), rank)
    }
}

/// Where those that come later call rank 0.
fn root_of(name: &str) -> String {
    format!("{name}-root")
}

fn called(name: &str) -> String {
    format!("isometry-{name}")
}

/// Who listens at a name may have no room for a caller.
fn connect(name: &str, most: Duration) -> io::Result<OwnedFd> {
    let (unix, stream) = (AddressFamily::UNIX, SocketType::STREAM);
    let socket = socket_with(unix, stream, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(most))?;
    net::connect(&socket, &SocketAddrUnix::new_abstract_name(called(name).as_bytes())?)?;
    Ok(socket)
}

fn listen(name: &str, rank: u32) -> Result<UnixListener, Error> {
    let address = SocketAddr::from_abstract_name(called(name));
    let address = address.map_err(Error::io("naming a socket"))?;
    let listener = match UnixListener::bind_addr(&address) {
        Err(e) if e.kind() == ErrorKind::AddrInUse => {
            return Err(Error::Refused { rank, why: "has joined already" });
        }
        bound => bound.map_err(Error::io("listening for ranks"))?,
    };
    listener.set_nonblocking(true).map_err(Error::io("listening for ranks"))?;
    Ok(listener)
}

impl Way for Handing {
    const KIND: u32 = 0;
    const LANES: u32 = 1;
    type Gift = Gift;

    fn connect(&self, rank: u32, most: Duration) -> io::Result<OwnedFd> {
        connect(&self.name_of(rank), most)
    }

    fn exchange(&self, _: u32, socket: &Socket, _: bool) -> io::Result<Gift> {
        let all: Vec<_> = self.memory.iter().chain(&self.process).map(AsFd::as_fd).collect();
        give(socket, &all)?;
        take(socket)
    }
}

fn give(socket: &Socket, all: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(all)), "there is room for three");
    let sent = sendmsg(socket, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL)?;
    if sent == 1 { Ok(()) } else { Err(ErrorKind::WriteZero.into()) }
}

fn take(socket: &Socket) -> io::Result<Gift> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut bytes = [IoSliceMut::new(&mut byte)];
    let received = recvmsg(socket, &mut bytes, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    if received.flags.contains(ReturnFlags::CTRUNC) {
        // Who has no descriptors left is given fewer, and is not to take that for a rank of no pidfd.
        return Err(Errno::MFILE.into());
    }
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    let process = (fds.len() == 3).then(|| fds.pop()).flatten();
    Ok((fds.try_into().map_err(|_| ErrorKind::InvalidData)?, process))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::socketpair;

    #[test]
    fn where_there_is_no_pidfd_memory_is_handed_over_alone() {
        let (unix, stream) = (AddressFamily::UNIX, SocketType::STREAM);
        let (first, second) = socketpair(unix, stream, SocketFlags::CLOEXEC, None).unwrap();
        let [first, second] = [first, second].map(Socket);
        let own = Process::own().unwrap();
        for (count, has_process) in [(2, false), (3, true)] {
            give(&first, &vec![own.as_fd(); count]).unwrap();
            let (_memory, process) = take(&second).unwrap();
            assert_eq!(process.is_some(), has_process);
        }
        give(&first, &[own.as_fd()]).unwrap();
        assert_eq!(take(&second).unwrap_err().kind(), ErrorKind::InvalidData);
    }

    #[test]
    fn what_is_cut_off_is_no_gift() {
        let (unix, stream) = (AddressFamily::UNIX, SocketType::STREAM);
        let (first, second) = socketpair(unix, stream, SocketFlags::CLOEXEC, None).unwrap();
        let own = Process::own().unwrap();
        let many = [own.as_fd(); 8];
        // More than there is room for, as where there are no descriptors left.
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&many)));
        sendmsg(&first, &[IoSlice::new(&[0])], &mut control, SendFlags::empty()).unwrap();
        let error = take(&Socket(second)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::MFILE.raw_os_error()), "{error}");
    }
}
