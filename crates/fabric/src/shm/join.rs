//! Processes of one machine meet at names in the abstract namespace, and hand over descriptors of
//! their memory. Rank `r` listens at a name of its own and connects to all below it. The socket stays
//! open: its end tells of the peer's.

use crate::config::Config;
use crate::error::Error;
use crate::meeting::{Joined, Socket, Way, meet};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

/// Its mailbox and its segment.
pub(crate) type Memory<T> = [T; 2];

/// Joins all ranks but this one, to which `memory` is handed; in the order of ranks, `None` for this
/// one.
pub(crate) fn join(
    config: &Config,
    name: &str,
    memory: Memory<BorrowedFd<'_>>,
) -> Result<Vec<Option<Joined<Memory<OwnedFd>>>>, Error> {
    if config.size == 1 {
        return Ok(vec![None]);
    }
    let way = Handing { name, memory };
    let listener = way.listen(config.rank)?;
    let callers = config.rank + 1..config.size;
    meet(config, &way, 0..config.rank, (Some(listener.as_fd()), callers))
}

struct Handing<'a> {
    name: &'a str,
    memory: Memory<BorrowedFd<'a>>,
}

impl Handing<'_> {
    fn address(&self, rank: u32) -> io::Result<SocketAddr> {
        SocketAddr::from_abstract_name(format!("isometry-{}-{rank}", self.name))
    }

    fn listen(&self, rank: u32) -> Result<UnixListener, Error> {
        let address = self.address(rank).map_err(Error::io("naming a socket"))?;
        let listener = match UnixListener::bind_addr(&address) {
            Err(e) if e.kind() == ErrorKind::AddrInUse => {
                return Err(Error::Refused { rank, why: "has joined already" });
            }
            bound => bound.map_err(Error::io("listening for ranks"))?,
        };
        listener.set_nonblocking(true).map_err(Error::io("listening for ranks"))?;
        Ok(listener)
    }
}

impl Way for Handing<'_> {
    const KIND: u32 = 0;
    const LANES: u32 = 1;
    type Gift = Memory<OwnedFd>;

    fn connect(&self, rank: u32) -> io::Result<OwnedFd> {
        Ok(UnixStream::connect_addr(&self.address(rank)?)?.into())
    }

    fn exchange(&self, _: u32, socket: &Socket, _: bool) -> io::Result<Memory<OwnedFd>> {
        give(socket, self.memory)?;
        take(socket)
    }
}

fn give(socket: &Socket, memory: Memory<BorrowedFd<'_>>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&memory)), "there is room for two");
    let sent = sendmsg(socket, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL)?;
    if sent == 1 { Ok(()) } else { Err(ErrorKind::WriteZero.into()) }
}

fn take(socket: &Socket) -> io::Result<Memory<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    fds.try_into().map_err(|_| ErrorKind::InvalidData.into())
}

/// The descriptors of both.
pub(crate) fn borrowed(memory: &Memory<OwnedFd>) -> Memory<BorrowedFd<'_>> {
    memory.each_ref().map(AsFd::as_fd)
}
