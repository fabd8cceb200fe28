//! Ranks meet at rank 0's port, where each says at which port it listens itself, and then call each
//! other: the higher the lower. Two ranks have three connections, one for requests, one for replies, and
//! one on which nothing is said, which the kernels of both ends keep alive.

use crate::config::{Config, ROOT};
use crate::error::Error;
use crate::meeting::{Joined, PATIENCE, Socket, Way, meet};
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{getpeername, getsockname};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// How many connections two ranks have: one for each queue, and the silent one.
pub(crate) const LANES: u32 = 3;

/// The silent one.
pub(crate) const SILENT: usize = 2;

/// The bytes of an address and a port.
const ADDRESS_BYTES: usize = 18;

/// The most bytes of a gift.
const GIFT_BYTES: u32 = 64 << 10;

/// What a rank has at the end: to every rank and lane, but none to itself, and what that gave.
pub(crate) type Peers = Vec<Option<Joined<Vec<u8>>>>;

/// Joins all ranks that meet at `root` for this kind of meeting, and gives the same to each.
pub(crate) fn meet_at<const LANES: u32, const KIND: u32>(
    config: &Config,
    root: &str,
    gift: &[u8],
) -> Result<Peers, Error> {
    let none = (0..config.size * LANES).map(|_| None).collect();
    if config.size == 1 {
        return Ok(none);
    }
    let root = resolved(root)?;
    let (listener, addresses) = match config.rank {
        0 => gather(config, root)?,
        _ => report(config, root)?,
    };
    listener.set_nonblocking(true).map_err(Error::io("listening for ranks"))?;
    let way = Connecting::<LANES, KIND> { addresses, gift };
    let callers = config.rank + 1..config.size;
    meet(config, &way, 0..config.rank, (Some(listener.as_fd()), callers))
}

fn resolved(root: &str) -> Result<SocketAddr, Error> {
    let wrong = |why: String| Error::Config { name: ROOT, why: format!("`{root}`: {why}") };
    let mut found = root.to_socket_addrs().map_err(|error| wrong(error.to_string()))?;
    found.next().ok_or_else(|| wrong("has no address".to_owned()))
}

fn listen(address: SocketAddr) -> Result<TcpListener, Error> {
    TcpListener::bind(address).map_err(Error::io("listening for ranks"))
}

/// As rank 0: hears where all others listen, and tells all. Its own address is what they call it by.
fn gather(config: &Config, root: SocketAddr) -> Result<(TcpListener, Vec<SocketAddr>), Error> {
    let at_root = listen(root)?;
    at_root.set_nonblocking(true).map_err(Error::io("listening for ranks"))?;
    let listener = listen(SocketAddr::new(root.ip(), 0))?;
    let own = listener.local_addr().map_err(Error::io("asking for a port"))?;
    let mut known = vec![None; config.size as usize];
    known[0] = Some(own);
    let way = Gathering { known: Mutex::new(known), all: Condvar::new(), timeout: config.timeout };
    meet(config, &way, 0..0, (Some(at_root.as_fd()), 1..config.size))?;
    Ok((listener, Vec::new()))
}

/// As any other.
fn report(config: &Config, root: SocketAddr) -> Result<(TcpListener, Vec<SocketAddr>), Error> {
    let mut met = meet(config, &Reporting { root, size: config.size }, 0..1, (None, 0..0))?;
    let root = met.swap_remove(0).expect("it was called");
    Ok(root.gift)
}

/// What rank 0 does where ranks meet.
struct Gathering {
    known: Mutex<Vec<Option<SocketAddr>>>,
    /// When all are known.
    all: Condvar,
    timeout: Duration,
}

impl Way for Gathering {
    const KIND: u32 = 1;
    const LANES: u32 = 1;
    type Gift = ();

    fn connect(&self, _: u32) -> io::Result<OwnedFd> {
        Err(ErrorKind::Unsupported.into())
    }

    fn exchange(&self, rank: u32, mut socket: &Socket, _: bool) -> io::Result<()> {
        let mut port = [0; 2];
        socket.read_exact(&mut port)?;
        let address = SocketAddr::new(peer_of(socket)?.ip(), u16::from_le_bytes(port));
        let mut known = self.known.lock().expect("no one panics with it");
        known[rank as usize] = Some(address);
        self.all.notify_all();
        let is_missing = |known: &mut Vec<Option<SocketAddr>>| known.iter().any(Option::is_none);
        let (known, waited) = self
            .all
            .wait_timeout_while(known, self.timeout, is_missing)
            .expect("no one panics with it");
        if waited.timed_out() {
            return Err(ErrorKind::TimedOut.into());
        }
        let table: Vec<u8> = known.iter().flatten().copied().flat_map(encoded).collect();
        drop(known);
        socket.write_all(&table)
    }
}

/// What the others do there.
struct Reporting {
    root: SocketAddr,
    size: u32,
}

impl Way for Reporting {
    const KIND: u32 = Gathering::KIND;
    const LANES: u32 = Gathering::LANES;
    /// Where this rank listens, and where all do.
    type Gift = (TcpListener, Vec<SocketAddr>);

    fn connect(&self, _: u32) -> io::Result<OwnedFd> {
        connect(self.root)
    }

    fn exchange(&self, _: u32, mut socket: &Socket, _: bool) -> io::Result<Self::Gift> {
        let own = SocketAddr::try_from(getsockname(socket)?)?;
        let listener = TcpListener::bind(SocketAddr::new(own.ip(), 0))?;
        socket.write_all(&listener.local_addr()?.port().to_le_bytes())?;
        let mut table = vec![[0; ADDRESS_BYTES]; self.size as usize];
        socket.read_exact(table.as_flattened_mut())?;
        let mut addresses: Vec<_> = table.iter().map(decoded).collect();
        // Rank 0 may not know by which address others reach it.
        addresses[0].set_ip(peer_of(socket)?.ip());
        Ok((listener, addresses))
    }
}

/// What all do then.
struct Connecting<'a, const LANES: u32, const KIND: u32> {
    addresses: Vec<SocketAddr>,
    gift: &'a [u8],
}

impl<const LANES: u32, const KIND: u32> Way for Connecting<'_, LANES, KIND> {
    const KIND: u32 = KIND;
    const LANES: u32 = LANES;
    type Gift = Vec<u8>;

    fn connect(&self, rank: u32) -> io::Result<OwnedFd> {
        connect(self.addresses[rank as usize])
    }

    fn exchange(&self, _: u32, mut socket: &Socket, _: bool) -> io::Result<Vec<u8>> {
        let length = u32::try_from(self.gift.len()).map_err(|_| ErrorKind::InvalidInput)?;
        socket.write_all(&[&length.to_le_bytes(), self.gift].concat())?;
        let mut length = [0; 4];
        socket.read_exact(&mut length)?;
        let length = Some(u32::from_le_bytes(length)).filter(|&length| length <= GIFT_BYTES);
        let mut theirs = vec![0; length.ok_or(ErrorKind::InvalidData)? as usize];
        socket.read_exact(&mut theirs)?;
        Ok(theirs)
    }
}

fn peer_of(socket: &Socket) -> io::Result<SocketAddr> {
    let peer = getpeername(socket)?.ok_or(ErrorKind::NotConnected)?;
    Ok(SocketAddr::try_from(peer)?)
}

fn connect(address: SocketAddr) -> io::Result<OwnedFd> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    // Where nobody listens at a port of this machine, a socket may connect to itself; the port is then
    // to be free at once.
    if stream.local_addr()? == stream.peer_addr()? {
        set_socket_linger(&stream, Some(Duration::ZERO))?;
        return Err(ErrorKind::ConnectionRefused.into());
    }
    Ok(stream.into())
}

fn encoded(address: SocketAddr) -> [u8; ADDRESS_BYTES] {
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let mut bytes = [0; ADDRESS_BYTES];
    bytes[..16].copy_from_slice(&ip.octets());
    bytes[16..].copy_from_slice(&address.port().to_le_bytes());
    bytes
}

fn decoded(bytes: &[u8; ADDRESS_BYTES]) -> SocketAddr {
    let [ip @ .., low, high] = *bytes;
    SocketAddr::new(Ipv6Addr::from(ip).to_canonical(), u16::from_le_bytes([low, high]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_as_they_were() {
        for address in ["127.0.0.1:1", "10.1.2.3:65535", "[::1]:7000", "[2001:db8::7]:80"] {
            let address: SocketAddr = address.parse().unwrap();
            assert_eq!(decoded(&encoded(address)), address);
        }
    }

    #[test]
    fn a_host_that_nobody_knows_is_named() {
        let error = resolved("no host:80").unwrap_err();
        assert!(error.to_string().starts_with(ROOT), "{error}");
    }
}
