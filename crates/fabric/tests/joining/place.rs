//! Ranks of this process, some of which come later.

use crate::common::{Over, fabric, new_job};
use isometry_fabric::model::NodeId;
use isometry_fabric::{APART, Atomic, Config, Error, Fabric, Handlers, Lost, Service};
use rustix::net::sockopt::set_socket_linger;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::ops::Deref;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

pub(crate) const ASK: u8 = 128;
pub(crate) const ANSWER: u8 = 129;
pub(crate) const DIE: u8 = 130;
pub(crate) const END: u8 = 131;

pub(crate) const WAYS: [Over; 4] = [Over::Shm, Over::Messages, Over::Tcp, Over::NearTcp];

/// Nothing here takes as long.
pub(crate) const LONG: Option<Duration> = Some(Duration::from_secs(60));

/// How long to wait for those that don't answer.
pub(crate) const SHORT: Duration = Duration::from_millis(300);

/// Where ranks of this process meet.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) over: Over,
    pub(crate) root: String,
    pub(crate) capacity: u32,
}

impl Place {
    pub(crate) fn new(over: Over, capacity: u32) -> Place {
        let [(_, root), ..] = new_job(1, over).variables(0);
        Place { over, root: over.root(root), capacity }
    }

    pub(crate) fn join(&self, config: Config) -> Result<Rank, Error> {
        let answers = Arc::new(AtomicU32::new(0));
        let counts = Arc::clone(&answers);
        let handlers = Handlers::new()
            .with(ASK, |call| call.reply(ANSWER, call.args(), &[]).unwrap())
            .with(ANSWER, move |_| _ = counts.fetch_add(1, SeqCst));
        let config = Config { segment_bytes: 1 << 16, ..config };
        let fabric = fabric(&config, matches!(self.over, Over::Messages), handlers)?;
        Ok(Rank { fabric: Arc::new(fabric), answers })
    }

    pub(crate) fn founder(&self, rank: u32, size: u32) -> Result<Rank, Error> {
        let config = Config::new(&self.root, (rank, size), b"key");
        self.join(Config { capacity: self.capacity, timeout: Duration::from_secs(20), ..config })
    }

    pub(crate) fn founders(&self, size: u32) -> Vec<Rank> {
        thread::scope(|scope| {
            let all: Vec<_> =
                (0..size).map(|rank| scope.spawn(move || self.founder(rank, size))).collect();
            all.into_iter().map(|rank| rank.join().unwrap().unwrap()).collect()
        })
    }

    pub(crate) fn later(&self) -> Result<Rank, Error> {
        self.later_with(b"key", Duration::from_secs(20))
    }

    pub(crate) fn later_with(&self, key: &[u8], timeout: Duration) -> Result<Rank, Error> {
        self.join(Config { timeout, ..Config::later(&self.root, key) })
    }

    /// Connects to where rank 0 lets others in.
    pub(crate) fn call(&self) -> io::Result<Box<dyn Stranger>> {
        Ok(match self.root.strip_prefix("local:") {
            Some(name) => {
                let name = format!("isometry-{name}-root");
                Box::new(UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?)
            }
            None => {
                // Before anybody listens, a socket may connect to itself.
                let socket = TcpStream::connect(self.root.replace(APART, ""))?;
                if socket.local_addr()? == socket.peer_addr()? {
                    set_socket_linger(&socket, Some(Duration::ZERO))?;
                    return Err(io::ErrorKind::ConnectionRefused.into());
                }
                Box::new(socket)
            }
        })
    }
}

pub(crate) trait Stranger: Read + Write {}
impl<T: Read + Write> Stranger for T {}

/// A rank of this process.
pub(crate) struct Rank {
    pub(crate) fabric: Arc<Fabric>,
    pub(crate) answers: Arc<AtomicU32>,
}

impl Deref for Rank {
    type Target = Fabric;

    fn deref(&self) -> &Fabric {
        &self.fabric
    }
}

impl Rank {
    pub(crate) fn serve(&self) -> Service {
        Service::of(Arc::clone(&self.fabric)).unwrap()
    }

    pub(crate) fn until_has(&self, rank: NodeId) {
        self.wait_until(LONG, || self.has(rank)).unwrap();
    }

    pub(crate) fn until_lost(&self, rank: NodeId) -> Lost {
        self.wait_until(LONG, || self.lost(rank).is_some()).unwrap();
        self.lost(rank).unwrap()
    }

    /// Speaks to `to`, which is served, in every way.
    pub(crate) fn reach(&self, to: &Rank) {
        let (peer, me) = (to.rank(), u64::from(self.rank().0));
        let before = self.answers.load(SeqCst);
        self.request(peer, ASK, &[1], &[]).unwrap();
        self.wait_until(LONG, || self.answers.load(SeqCst) > before).unwrap();
        let bytes: Vec<u8> = (0..6000).map(|i| (i * 7 + me) as u8).collect();
        self.put(peer, 64, &bytes).unwrap();
        let mut back = vec![0; bytes.len()];
        self.get(peer, 64, &mut back).unwrap();
        assert_eq!(back, bytes);
        let old = self.atomic(peer, 8, Atomic::Add(1)).unwrap();
        assert_eq!(self.get_word(peer, 8).unwrap(), old + 1);
        assert_eq!(self.published_bytes(peer), 1 << 16);
    }
}

pub(crate) fn all_reach_all(ranks: &[Rank]) {
    for (from, to) in ranks.iter().flat_map(|from| ranks.iter().map(move |to| (from, to))) {
        from.reach(to);
    }
}

/// Nothing goes to a rank that there is not, or no more.
pub(crate) fn reaches_not(from: &Rank, to: NodeId, is_it: fn(&Error) -> bool) {
    for error in [
        from.put(to, 0, &[1]).unwrap_err(),
        from.get(to, 0, &mut [1]).unwrap_err(),
        from.put_word(to, 0, 1).unwrap_err(),
        from.atomic(to, 0, Atomic::Add(1)).unwrap_err(),
        from.fill(to, (0, 1), 1).unwrap_err(),
        from.put_copies(to, &[], (&[], 0), 0).unwrap_err(),
        from.request(to, ASK, &[], &[]).unwrap_err(),
        from.try_request(to, ASK, &[], &[]).unwrap_err(),
        from.request_long(to, ASK, &[], (&[1], 0)).unwrap_err(),
    ] {
        assert!(is_it(&error), "{error}");
    }
    assert!(!from.reaches(to));
}

pub(crate) fn is_lost(error: &Error) -> bool {
    matches!(error, Error::PeerLost { .. })
}

pub(crate) fn is_nobody(error: &Error) -> bool {
    matches!(error, Error::NoSuchPeer { .. })
}
