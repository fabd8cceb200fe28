//! Ranks that stop while one comes, and ones that come and stop, by TCP: each goes as far as a test says.

use super::handshake::ADMISSION;
use super::*;
use crate::conduit::{Conduit, Lost, QUEUES};
use crate::config::{APART, Job};
use crate::tcp::Tcp;
use crate::tcp::join::{Joining, LANES, come_to, meet_at};
use model::NodeId;
use rustix::net::{Shutdown, listen, shutdown};
use std::net::{TcpListener, TcpStream};
use std::thread;

/// How far a rank goes with each that calls before it stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stops {
    /// Not so far as to take the call, and others have taken all room.
    Full,
    /// It says something.
    Spoken,
    /// It proves itself.
    Proved,
    /// It gives and takes.
    Given,
}

const STOPS: [Stops; 4] = [Stops::Full, Stops::Spoken, Stops::Proved, Stops::Given];

/// Calls until there is no room.
fn fill(listener: &TcpListener) -> Vec<TcpStream> {
    listen(listener, 0).unwrap();
    let (at, soon) = (listener.local_addr().unwrap(), Duration::from_millis(300));
    std::iter::from_fn(|| TcpStream::connect_timeout(&at, soon).ok()).collect()
}

/// Hears callers until the listener is shut down.
fn hear<W: Way>(stops: Stops, (listener, way): (&TcpListener, &W), config: &Config) {
    let handshake = Handshake { config, kind: W::KIND, lanes: W::LANES };
    let mut heard = Vec::new();
    while let Ok((socket, _)) = listener.accept() {
        let socket = Socket(socket.into());
        if stops == Stops::Spoken {
            (&socket).write_all(b"i").unwrap();
        } else {
            handshake.answer(&socket, &(config.size..config.capacity)).unwrap();
        }
        if stops == Stops::Given {
            way.exchange(config.size, &socket, false).unwrap();
        }
        heard.push(socket);
    }
}

fn come_while_stopping(stops: Stops) {
    let root = place();
    let founder = |rank| Config { capacity: 4, ..Config::new(&root, (rank, 2), b"key") };
    let (first, stopping) = thread::scope(|scope| {
        let second = scope.spawn(|| meet_at::<LANES, 2>(&founder(1), &root, &[0; 8]).unwrap());
        (Tcp::join(&founder(0)).unwrap(), second.join().unwrap())
    });
    let Joining { peers, way, listener, .. } = stopping;
    let listener = listener.unwrap();
    let late = Config::later(&root, b"key");
    thread::scope(|scope| {
        let callers = if stops == Stops::Full { fill(&listener) } else { Vec::new() };
        if stops != Stops::Full {
            listener.set_nonblocking(false).unwrap();
            scope.spawn(|| hear(stops, (&listener, &way), &founder(1)));
        }
        let error = Tcp::join(&late).unwrap_err();
        assert!(matches!(error, Error::Unresponsive { rank: 1, .. }), "{stops:?}: {error}");
        shutdown(&listener, Shutdown::Both).unwrap();
        drop(callers);
    });
    drop((peers, listener));
    // Who was called may have told others of the number.
    let next = if stops == Stops::Full { 2 } else { 3 };
    assert_eq!(Tcp::join(&late).unwrap().place().0.0, next, "{stops:?}");
    drop(first);
}

#[test]
fn who_comes_while_a_rank_stops_is_told_so_in_the_middle_too() {
    thread::scope(|scope| {
        for stops in STOPS {
            scope.spawn(move || come_while_stopping(stops));
        }
    });
}

#[test]
fn one_that_stops_while_it_comes_is_waited_for_as_long_as_it_said() {
    let root = place();
    let config = Config { capacity: 8, ..Config::new(&root, (0, 1), b"key") };
    let first = Tcp::join(&config).unwrap();
    let late = Config::later(&root, b"key");
    let come = || Tcp::join(&late).map(|tcp| tcp.place().0.0);
    let next = || come().unwrap();
    let soon = Config { timeout: Duration::from_secs(2), ..late.clone() };
    let connect = |_| Ok(OwnedFd::from(TcpStream::connect(&root)?));
    let told = || enter(&soon, connect, |_| Ok(vec![0; 2])).unwrap();
    let is_refused = |told: Result<(), Error>| matches!(told, Err(Error::Refused { rank: 0, .. }));

    let proved = Socket(connect(PATIENCE).unwrap());
    let handshake = Handshake { config: &late, kind: ADMISSION, lanes: 1 };
    handshake.call(&proved, (0, 0)).unwrap();
    assert_eq!(next(), 1, "it was told nothing");

    let entry = told();
    assert_eq!(next(), 2, "it has called nobody");
    assert!(is_refused(entry.begin()));

    let entry = told();
    entry.begin().unwrap();
    assert_eq!(next(), 4, "it may have called others");
    assert!(is_refused(entry.finish()));

    let (entry, joining) = come_to::<LANES, 2>(&soon, &root, &[0; 8]).unwrap();
    let error = come().unwrap_err();
    assert!(matches!(error, Error::Unresponsive { rank: 5, .. }), "{error}");
    assert!(is_refused(entry.finish()) && first.has(NodeId(5)));
    drop(joining);
    assert_eq!(next(), 6, "it has called all");
    while first.lost(NodeId(5)).is_none() {
        QUEUES.iter().for_each(|&queue| _ = first.receive(queue, &mut |_, _| {}));
    }
    assert_eq!(first.lost(NodeId(5)), Some(Lost::Died));
}

/// Where ranks of this machine may meet.
fn place() -> String {
    let [(_, root), ..] = Job::loopback(1).unwrap().variables(0);
    root.replace(APART, "")
}
