//! Two ranks by TCP or UCX on this machine, beside a plain socket on which a thread answers each so many bytes
//! with one.

use super::{AT, COUNT, PEER, Pair, Run, failed, weight_of};
use crate::Error;
use crate::report::{Bench, Case, Contender};
use serde::Deserialize;
use std::cell::RefCell;
use std::hint::black_box;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::thread;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Problems {
    /// Of puts, gets and messages that are waited for.
    bytes: Vec<usize>,
    /// That go one way in messages of so many bytes.
    stream_bytes: usize,
    message_bytes: Vec<usize>,
    /// Those that are timed together, where bytes are few.
    round_trips: usize,
    runs: usize,
}

/// Where more than this goes each way, one is timed at a time.
const FEW_BYTES: usize = 65536;

impl Pair {
    /// `by` says what the ranks speak by.
    pub(super) fn socket_cases(
        &self,
        bench: &mut Bench,
        by: &str,
        problems: &Problems,
    ) -> Result<(), Error> {
        for &bytes in &problems.bytes {
            let batch = if bytes > FEW_BYTES { 1 } else { problems.round_trips };
            self.socket_moves((bench, by), (bytes, batch), problems.runs)?;
        }
        for &bytes in &problems.message_bytes {
            let count = problems.stream_bytes / bytes;
            self.socket_stream((bench, by), (bytes, count), problems.runs)?;
        }
        Ok(())
    }

    /// So many puts, gets, and requests with replies, each waited for.
    fn socket_moves(
        &self,
        (bench, by): (&mut Bench, &str),
        (bytes, batch): (usize, usize),
        runs: usize,
    ) -> Result<(), Error> {
        let sent: Vec<u8> = (0..bytes).map(|i| (i * 31 + i / 251) as u8).collect();
        let back = RefCell::new(vec![0; bytes]);
        let put = || self.fabric.put(PEER, AT, black_box(&sent)).map_err(failed);
        let get = || self.fabric.get(PEER, AT, black_box(&mut *back.borrow_mut())).map_err(failed);
        let mut there = || {
            self.fabric.fill(PEER, (AT, bytes), 0).map_err(failed)?;
            back.borrow_mut().fill(0);
            put().and_then(|()| get())?;
            Ok(*back.borrow() == sent)
        };
        let mut time = |verb: &str, ours: &mut Run<'_>, theirs: &mut Run<'_>| {
            let name = format!("{verb} {bytes} B, {by}, x{batch}");
            let case = Case { name, bytes: (bytes * batch) as u64, threads: 2, runs, calls: 1 };
            if !bench.wants(&case.name) {
                return Ok(());
            }
            let mut contenders = [
                Contender { name: "isometry", run: ours },
                Contender { name: "raw TCP", run: theirs },
            ];
            bench.run(&case, &mut contenders, &mut there)
        };
        let mut raw = Raw::taking(bytes).map_err(raw_failed)?;
        let mut raw_puts = || (0..batch).try_for_each(|_| raw.send(&sent)).map_err(raw_failed);
        time("put", &mut || (0..batch).try_for_each(|_| put()), &mut raw_puts)?;
        let mut raw = Raw::giving(bytes).map_err(raw_failed)?;
        let mut into = vec![0; bytes];
        let mut raw_gets = || (0..batch).try_for_each(|_| raw.ask(&mut into)).map_err(raw_failed);
        time("get", &mut || (0..batch).try_for_each(|_| get()), &mut raw_gets)
    }

    /// So many messages of so many bytes one way, the last of which is waited for.
    fn socket_stream(
        &self,
        (bench, by): (&mut Bench, &str),
        (bytes, count): (usize, usize),
        runs: usize,
    ) -> Result<(), Error> {
        let sent: Vec<u8> = (0..bytes).map(|i| (i * 31 + i / 251) as u8).collect();
        let is_long = bytes > self.fabric.capabilities().medium_bytes;
        let request = || match is_long {
            true => self.fabric.request_long(PEER, COUNT, &[], (black_box(&sent), AT)),
            false => self.fabric.request(PEER, COUNT, &[], black_box(&sent)),
        };
        let mut ours = || {
            // Whatever answers the last has come behind the others.
            (0..count).try_for_each(|_| request()).and_then(|()| self.round_trip(0)).map_err(failed)
        };
        let kind = if is_long { "long" } else { "medium" };
        let name = format!("{kind} messages of {bytes} B, {by}, x{count}");
        let case = Case { name, bytes: (bytes * count) as u64, threads: 2, runs, calls: 1 };
        if !bench.wants(&case.name) {
            return Ok(());
        }
        let mut raw = Raw::taking(bytes * count).map_err(raw_failed)?;
        let mut raw_stream = || raw.send_each(&sent, count).map_err(raw_failed);
        let before = self.counted.load(Ordering::Relaxed);
        let weight = count as u64 * weight_of(bytes, sent.last().copied());
        let mut verify = || Ok(self.counted.load(Ordering::Relaxed) == before + weight);
        let mut contenders = [
            Contender { name: "isometry", run: &mut ours },
            Contender { name: "raw TCP", run: &mut raw_stream },
        ];
        bench.run(&case, &mut contenders, &mut verify)
    }
}

fn raw_failed(error: io::Error) -> Error {
    Error::part("reaching a socket")(error)
}

/// A socket at whose other end a thread answers until this one is closed.
struct Raw(TcpStream);

impl Raw {
    /// A thread that takes so many bytes, and then says so with one.
    fn taking(bytes: usize) -> io::Result<Raw> {
        let mut buffer = vec![0; bytes.min(TAKEN_BYTES)];
        Raw::with(move |socket| {
            let mut left = bytes;
            while left > 0 {
                let some = left.min(buffer.len());
                socket.read_exact(&mut buffer[..some])?;
                left -= some;
            }
            socket.write_all(&[1])
        })
    }

    /// A thread that gives so many bytes when it is asked with one.
    fn giving(bytes: usize) -> io::Result<Raw> {
        let buffer = vec![1; bytes];
        Raw::with(move |socket| {
            socket.read_exact(&mut [0])?;
            socket.write_all(&buffer)
        })
    }

    fn with(
        mut turn: impl FnMut(&mut TcpStream) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Raw> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let socket = TcpStream::connect(listener.local_addr()?)?;
        let (mut theirs, _) = listener.accept()?;
        socket.set_nodelay(true)?;
        theirs.set_nodelay(true)?;
        // It ends when this end does.
        thread::spawn(move || while turn(&mut theirs).is_ok() {});
        Ok(Raw(socket))
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.send_each(bytes, 1)
    }

    fn send_each(&mut self, bytes: &[u8], count: usize) -> io::Result<()> {
        (0..count).try_for_each(|_| self.0.write_all(bytes))?;
        self.0.read_exact(&mut [0])
    }

    fn ask(&mut self, into: &mut [u8]) -> io::Result<()> {
        self.0.write_all(&[1])?;
        self.0.read_exact(into)
    }
}

/// The most bytes that a thread takes at once.
const TAKEN_BYTES: usize = 64 << 20;
