//! Ranks meet at rank 0's port, where each says at which port it listens itself, and then call each
//! other: the higher the lower. Two ranks have three connections, one for requests, one for replies, and
//! one on which nothing is said, which the kernels of both ends keep alive. Where others may come later
//! all go on listening, rank 0 at its port too.
//!
//! A machine may take its own name for a loopback address, which others don't: ranks there listen at all
//! addresses, and others call them by that of rank 0.

use crate::config::{Config, ROOT};
use crate::error::Error;
use crate::locks::lock;
use crate::meeting::{Entry, Met, Socket, Way, call_there, enter, meet};
use rustix::net::sockopt::{set_socket_linger, set_tcp_nodelay};
use rustix::net::{getpeername, getsockname};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
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

/// Where ranks listen.
pub(crate) type Addresses = BTreeMap<u32, SocketAddr>;

/// What a rank has that has met others, and what of it others that come later call.
pub(crate) struct Joining<const LANES: u32, const KIND: u32> {
    pub(crate) peers: Met<Vec<u8>>,
    pub(crate) way: Connecting<LANES, KIND>,
    /// Where it listens, unless it is alone.
    pub(crate) listener: Option<TcpListener>,
    /// What rank 0 has besides: where it listens at the root, and where all ranks do.
    pub(crate) root: Option<(TcpListener, Addresses)>,
}

/// Joins all ranks that meet at `root` for this kind of meeting, and gives the same to each.
pub(crate) fn meet_at<const LANES: u32, const KIND: u32>(
    config: &Config,
    root: &str,
    gift: &[u8],
) -> Result<Joining<LANES, KIND>, Error> {
    let way = Connecting { addresses: Addresses::new(), gift: gift.to_vec() };
    if config.capacity == 1 {
        return Ok(Joining { peers: Met::new(), way, listener: None, root: None });
    }
    let (listener, root, addresses) = match config.rank {
        0 => {
            let (listener, at_root, addresses) = gather(config, root)?;
            (listener, Some((at_root, addresses)), Addresses::new())
        }
        _ => {
            let (listener, addresses) = report(config, root)?;
            (listener, None, addresses)
        }
    };
    listener.set_nonblocking(true).map_err(Error::io("listening for ranks"))?;
    let way = Connecting { addresses, ..way };
    let callers = config.rank + 1..config.size;
    let peers = meet(config, &way, 0..config.rank, (Some(listener.as_fd()), callers))?;
    Ok(Joining { peers, way, listener: Some(listener), root })
}

/// As a rank that comes later, joins those that there are; what it is told says which rank it is.
pub(crate) fn come_to<const LANES: u32, const KIND: u32>(
    config: &Config,
    root: &str,
    gift: &[u8],
) -> Result<(Entry, Joining<LANES, KIND>), Error> {
    let place = resolved(root)?;
    let mut bound = None;
    let entry = enter(
        config,
        |most| connect(place, most),
        |socket| {
            let listener = listen_beside(root, socket).map_err(Error::io("listening for ranks"))?;
            let own = listener.local_addr().map_err(Error::io("asking for a port"))?;
            bound = Some(listener);
            Ok(own.port().to_le_bytes().to_vec())
        },
    )?;
    let root = peer_of(entry.socket()).map_err(Error::io("asking for rank 0's address"))?.ip();
    let address = |place: &Vec<u8>| Some(reached(decoded(place.first_chunk()?), root));
    let known = entry.places().iter();
    let addresses = known.filter_map(|(&rank, place)| Some((rank, address(place)?))).collect();
    let way = Connecting { addresses, gift: gift.to_vec() };
    let peers = call_there(&entry.config(config), &way, &entry)?;
    Ok((entry, Joining { peers, way, listener: bound, root: None }))
}

fn resolved(root: &str) -> Result<SocketAddr, Error> {
    let wrong = |why: String| Error::Config { name: ROOT, why: format!("`{root}`: {why}") };
    let mut found = root.to_socket_addrs().map_err(|error| wrong(error.to_string()))?;
    found.next().ok_or_else(|| wrong("has no address".to_owned()))
}

/// Where a rank listens that is at `ip`, or reaches rank 0 from there: at all addresses where `root`
/// names this machine and it takes that for a loopback address, but for `localhost`.
fn listening(root: &str, ip: IpAddr) -> IpAddr {
    let host = root.rsplit_once(':').map_or(root, |(host, _)| host);
    let is_name = host != "localhost" && !host.starts_with('[') && host.parse::<IpAddr>().is_err();
    match ip {
        ip if !is_name || !ip.is_loopback() => ip,
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// Listens for those that are answered in short words, none of which the kernel is to hold back.
fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    // Whoever is accepted has it from there.
    set_tcp_nodelay(&listener, true)?;
    Ok(listener)
}

fn listen(address: SocketAddr) -> Result<TcpListener, Error> {
    bind(address).map_err(|error| {
        let why = match error.kind() {
            ErrorKind::AddrInUse => "is taken: choose another port",
            ErrorKind::AddrNotAvailable => {
                "is no address of this machine, where rank 0 is to listen"
            }
            _ => return Error::io("listening for ranks")(error),
        };
        Error::Config { name: ROOT, why: format!("`{address}` {why}") }
    })
}

/// As rank 0: hears where all others listen, and tells all. Its own address is what they call it by.
/// Returns where it listens, also at the root, and where all do.
fn gather(config: &Config, root: &str) -> Result<(TcpListener, TcpListener, Addresses), Error> {
    let place = resolved(root)?;
    let ip = listening(root, place.ip());
    let at_root = listen(SocketAddr::new(ip, place.port()))?;
    at_root.set_nonblocking(true).map_err(Error::io("listening for ranks"))?;
    let listener = listen(SocketAddr::new(ip, 0))?;
    let own = listener.local_addr().map_err(Error::io("asking for a port"))?;
    let known = Mutex::new(Addresses::from([(0, own)]));
    let Config { size, timeout, .. } = *config;
    let way = Gathering { known, all: Condvar::new(), size, timeout };
    meet(config, &way, 0..0, (Some(at_root.as_fd()), 1..config.size))?;
    let known = way.known.into_inner().expect("no one panics with it");
    Ok((listener, at_root, known))
}

/// As any other.
fn report(config: &Config, root: &str) -> Result<(TcpListener, Addresses), Error> {
    let way = Reporting { name: root, root: resolved(root)?, size: config.size };
    let mut met = meet(config, &way, 0..1, (None, 0..0))?;
    let root = met.remove(&0).and_then(|mut lanes| lanes.pop()).expect("it was called");
    Ok(root.gift)
}

/// What rank 0 does where ranks meet.
struct Gathering {
    known: Mutex<Addresses>,
    /// When all are known.
    all: Condvar,
    size: u32,
    timeout: Duration,
}

impl Way for Gathering {
    const KIND: u32 = 1;
    const LANES: u32 = 1;
    type Gift = ();

    fn connect(&self, _: u32, _: Duration) -> io::Result<OwnedFd> {
        Err(ErrorKind::Unsupported.into())
    }

    fn exchange(&self, rank: u32, mut socket: &Socket, _: bool) -> io::Result<()> {
        let mut port = [0; 2];
        socket.read_exact(&mut port)?;
        let address = beside(socket, port)?;
        let mut known = lock(&self.known);
        known.insert(rank, address);
        self.all.notify_all();
        let is_missing = |known: &mut Addresses| known.len() < self.size as usize;
        let (known, waited) = self
            .all
            .wait_timeout_while(known, self.timeout, is_missing)
            .expect("no one panics with it");
        if waited.timed_out() {
            return Err(ErrorKind::TimedOut.into());
        }
        let table: Vec<u8> = known.values().copied().flat_map(encoded).collect();
        drop(known);
        socket.write_all(&table)
    }
}

/// What the others do there.
struct Reporting<'a> {
    name: &'a str,
    root: SocketAddr,
    size: u32,
}

impl Way for Reporting<'_> {
    const KIND: u32 = Gathering::KIND;
    const LANES: u32 = Gathering::LANES;
    /// Where this rank listens, and where all do.
    type Gift = (TcpListener, Addresses);

    fn connect(&self, _: u32, most: Duration) -> io::Result<OwnedFd> {
        connect(self.root, most)
    }

    fn exchange(&self, _: u32, mut socket: &Socket, _: bool) -> io::Result<Self::Gift> {
        let listener = listen_beside(self.name, socket)?;
        socket.write_all(&listener.local_addr()?.port().to_le_bytes())?;
        let mut table = vec![[0; ADDRESS_BYTES]; self.size as usize];
        socket.read_exact(table.as_flattened_mut())?;
        let root = peer_of(socket)?.ip();
        let called = table.iter().map(|known| reached(decoded(known), root));
        Ok((listener, (0..).zip(called).collect()))
    }
}

/// Listens where a rank is that reaches rank 0 by `socket`.
fn listen_beside(root: &str, socket: &Socket) -> io::Result<TcpListener> {
    let own = SocketAddr::try_from(getsockname(socket)?)?;
    let listener = bind(SocketAddr::new(listening(root, own.ip()), 0))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Where a rank listens that has told its port by `socket`.
fn beside(socket: &Socket, port: [u8; 2]) -> io::Result<SocketAddr> {
    Ok(SocketAddr::new(peer_of(socket)?.ip(), u16::from_le_bytes(port)))
}

/// What rank 0 knows of where ranks listen, those that come later among them.
#[derive(Debug)]
pub(crate) struct Book(Mutex<Addresses>);

impl Book {
    pub(crate) fn of(known: Addresses) -> Book {
        Book(Mutex::new(known))
    }

    /// Notes what a rank has said by `socket`.
    pub(crate) fn note(&self, rank: u32, socket: &Socket, said: &[u8]) -> io::Result<()> {
        let port = said.try_into().map_err(|_| ErrorKind::InvalidData)?;
        lock(&self.0).insert(rank, beside(socket, port)?);
        Ok(())
    }

    /// Where a rank listens, as others are told.
    pub(crate) fn place(&self, rank: u32) -> Vec<u8> {
        lock(&self.0).get(&rank).map_or(Vec::new(), |&address| encoded(address).to_vec())
    }
}

/// What all do then.
#[derive(Debug)]
pub(crate) struct Connecting<const LANES: u32, const KIND: u32> {
    addresses: Addresses,
    gift: Vec<u8>,
}

impl<const LANES: u32, const KIND: u32> Way for Connecting<LANES, KIND> {
    const KIND: u32 = KIND;
    const LANES: u32 = LANES;
    type Gift = Vec<u8>;

    fn connect(&self, rank: u32, most: Duration) -> io::Result<OwnedFd> {
        connect(*self.addresses.get(&rank).ok_or(ErrorKind::AddrNotAvailable)?, most)
    }

    fn exchange(&self, _: u32, mut socket: &Socket, _: bool) -> io::Result<Vec<u8>> {
        let length = u32::try_from(self.gift.len()).map_err(|_| ErrorKind::InvalidInput)?;
        socket.write_all(&[&length.to_le_bytes(), &self.gift[..]].concat())?;
        let mut length = [0; 4];
        socket.read_exact(&mut length)?;
        let length = Some(u32::from_le_bytes(length)).filter(|&length| length <= GIFT_BYTES);
        let mut theirs = vec![0; length.ok_or(ErrorKind::InvalidData)? as usize];
        socket.read_exact(&mut theirs)?;
        Ok(theirs)
    }
}

/// By which address to call a rank, where rank 0 was reached at `root`: it, and those that it sees on
/// its own machine, may not know by which one others reach them.
fn reached(known: SocketAddr, root: IpAddr) -> SocketAddr {
    let is_there = known.ip().is_loopback() || known.ip().is_unspecified();
    if is_there { SocketAddr::new(root, known.port()) } else { known }
}

fn peer_of(socket: &Socket) -> io::Result<SocketAddr> {
    let peer = getpeername(socket)?.ok_or(ErrorKind::NotConnected)?;
    Ok(SocketAddr::try_from(peer)?)
}

fn connect(address: SocketAddr, most: Duration) -> io::Result<OwnedFd> {
    let stream = TcpStream::connect_timeout(&address, most)?;
    // Where nobody listens at a port of this machine, a socket may connect to itself; the port is then
    // to be free at once.
    if stream.local_addr()? == stream.peer_addr()? {
        set_socket_linger(&stream, Some(Duration::ZERO))?;
        return Err(ErrorKind::ConnectionRefused.into());
    }
    stream.set_nodelay(true)?;
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
    fn ranks_of_a_machine_that_takes_its_name_for_a_loopback_address_are_reached_from_others() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let all = [ip("0.0.0.0"), ip("::")];
        assert_eq!(["127.0.1.1", "::1"].map(|at| listening("node-3:80", ip(at))), all);
        let kept = [
            ("node-3:80", "10.0.0.3"),
            ("localhost:80", "127.0.0.1"),
            ("127.0.0.1:80", "127.0.0.1"),
            ("[::1]:80", "::1"),
        ];
        for (root, at) in kept {
            assert_eq!(listening(root, ip(at)), ip(at), "{root}");
        }
        let table = ["0.0.0.0:1", "127.0.0.1:2", "10.0.0.4:3", "[::1]:4"];
        let reach = |at: &str| reached(at.parse().unwrap(), ip("10.0.0.3")).to_string();
        let called = table.map(reach);
        assert_eq!(called, ["10.0.0.3:1", "10.0.0.3:2", "10.0.0.4:3", "10.0.0.3:4"]);
    }

    #[test]
    fn a_port_that_is_taken_and_an_address_of_another_machine_are_named() {
        let held = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let taken = held.local_addr().unwrap();
        for (at, why) in [(taken, "is taken"), ("192.0.2.1:7000".parse().unwrap(), "no address")] {
            let error = listen(at).unwrap_err().to_string();
            assert!(error.starts_with(ROOT) && error.contains(why), "{error}");
        }
    }

    #[test]
    fn a_host_that_nobody_knows_is_named() {
        let error = resolved("no host:80").unwrap_err();
        assert!(error.to_string().starts_with(ROOT), "{error}");
    }
}
