//! One of the streams between two ranks, at either end.
//!
//! **Hazard.** A frame goes into the socket in part, and who sent it does something else. **Guarantee.**
//! What is taken goes out whole, before anything else of that stream. **Structure.** The rest of a frame
//! is kept, and written when there is room, by whoever sends or polls next; small messages may queue
//! behind it, so many bytes. What comes is read as far as there is room: puts to where they belong, and
//! all else to a buffer in which messages lie whole.

use super::bells::Bells;
use super::closable::Closable;
use super::frame::{Broken, FAREWELL, Frame, Front, Limits, PutFrame, put_frames};
use crate::conduit::{Refusal, Run};
use crate::locks::lock;
use crate::message::{FRONT_BYTES, Message};
use crate::segment::Segment;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::{Errno, Result};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, recv, sendmsg, shutdown};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The most bytes of a payload that travels with a message.
pub(crate) const MEDIUM_BYTES: usize = 64 << 10;

/// Where more than so many bytes wait to be written, a stream takes no more.
const QUEUE_BYTES: usize = 64 << 10;

/// Messages of no payload that are taken while nothing can be written.
pub(crate) const CREDITS: usize = QUEUE_BYTES / FRONT_BYTES;

/// From how many bytes on a run has a frame of its own.
pub(crate) const RUN_BYTES: u64 = 8 << 10;

/// The most messages that are written at once.
const MESSAGES: usize = 256;

/// The bytes that are read at once: of messages, and behind a put.
const BUFFER_BYTES: usize = 256 << 10;
const BEHIND_BYTES: usize = 256;

/// How long a rank that leaves waits for others to take what it has sent.
pub(crate) const LEAVING: Duration = Duration::from_secs(1);

/// The most streams that a look finds ready.
const EVENTS: usize = 64;

/// Streams that are to be written when there is room, and who sleeps.
#[derive(Debug)]
pub(crate) struct Waiting {
    outs: OwnedFd,
    watched: AtomicUsize,
    pub(crate) bells: Bells,
}

impl Waiting {
    pub(crate) fn new() -> Result<Waiting> {
        let outs = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Waiting { outs, watched: AtomicUsize::new(0), bells: Bells::default() })
    }

    /// Readable while one of the streams has room.
    pub(crate) fn outs(&self) -> &OwnedFd {
        &self.outs
    }

    /// The names of those that have room.
    pub(crate) fn writable(&self) -> Vec<u64> {
        if self.watched.load(Ordering::Acquire) == 0 { Vec::new() } else { ready(&self.outs) }
    }
}

/// The names of what is ready in an epoll set.
pub(crate) fn ready(set: &OwnedFd) -> Vec<u64> {
    let mut events = [const { MaybeUninit::uninit() }; EVENTS];
    // Interrupted: it is looked at again.
    let found = epoll::wait(set, &mut events, Some(&Timespec::default()));
    found.map_or(Vec::new(), |(events, _)| events.iter().map(|event| event.data.u64()).collect())
}

/// A stream to a peer and from it.
#[derive(Debug)]
pub(crate) struct Stream {
    /// What [`Waiting::writable`] calls it.
    name: u64,
    to: Closable,
    from: Closable,
    writer: Mutex<Writer>,
}

#[derive(Debug, Default)]
struct Writer {
    /// What was taken and not written, but for the first `written` bytes.
    rest: Vec<u8>,
    written: usize,
    /// Whether it is among those that are to be written.
    is_watched: bool,
    /// Whether somebody was refused for want of room.
    is_wanted: bool,
    has_ended: bool,
}

impl Stream {
    pub(crate) fn new(name: u64, to: Arc<OwnedFd>, from: Arc<OwnedFd>) -> Stream {
        let (to, from) = (Closable::new(to), Closable::new(from));
        Stream { name, to, from, writer: Mutex::default() }
    }

    /// Where it is read, until it is closed.
    pub(crate) fn source(&self) -> Option<Arc<OwnedFd>> {
        self.from.get()
    }

    /// Sends the first of `messages`, of which there is one; returns how many.
    pub(crate) fn send(
        &self,
        waiting: &Waiting,
        messages: &[Message<'_>],
    ) -> std::result::Result<usize, Refusal> {
        self.write(waiting, |writer, socket| {
            let has_room = writer.flush(socket)?;
            if !has_room && writer.rest.len() - writer.written >= QUEUE_BYTES {
                return Ok(None);
            }
            let fronts: Vec<_> = messages.iter().take(MESSAGES).map(Message::front).collect();
            let frames: Vec<_> = (fronts.iter().zip(messages))
                .map(|((front, length), message)| {
                    [&front[..*length], message.payload.carried(), message.rest]
                })
                .collect();
            let sent = if has_room { writer.write(socket, &frames)? } else { 0 };
            if sent == 0 {
                writer.keep(&frames[0], 0);
            }
            Ok(Some(sent.max(1)))
        })
    }

    /// Puts the first bytes of `runs`; returns how many.
    pub(crate) fn put(
        &self,
        waiting: &Waiting,
        runs: &[Run<'_>],
    ) -> std::result::Result<usize, Refusal> {
        self.write(waiting, |writer, socket| {
            let taken = if writer.flush(socket)? { writer.put(socket, runs)? } else { 0 };
            Ok((taken > 0).then_some(taken))
        })
    }

    /// Writes what waits.
    pub(crate) fn flush(&self, waiting: &Waiting) {
        // Who is refused here asked for nothing.
        let _ = self.write(waiting, |writer, socket| writer.flush(socket).map(|_| Some(())));
    }

    /// Calls `run`, which returns `None` for want of room.
    fn write<T>(
        &self,
        waiting: &Waiting,
        run: impl FnOnce(&mut Writer, BorrowedFd<'_>) -> Result<Option<T>>,
    ) -> std::result::Result<T, Refusal> {
        let mut writer = lock(&self.writer);
        let to = self.to.get().filter(|_| !writer.has_ended).ok_or(Refusal::Lost)?;
        let done = run(&mut writer, to.as_fd());
        if done.is_err() {
            self.end(waiting, &mut writer);
            // Who reads it has to hear of that too.
            let _ = shutdown(&to, Shutdown::Both);
        }
        writer.is_wanted |= matches!(done, Ok(None));
        self.watch(waiting, &mut writer, matches!(done, Ok(None)));
        done.map_err(|_| Refusal::Lost)?.ok_or(Refusal::Full)
    }

    /// Sees to it that somebody hears of room as long as there is something to write, or somebody has
    /// just been refused.
    fn watch(&self, waiting: &Waiting, writer: &mut Writer, is_refused: bool) {
        let watch = !writer.has_ended && (is_refused || !writer.rest.is_empty());
        let Some(to) = self.to.get().filter(|_| watch != writer.is_watched) else { return };
        writer.is_watched = watch;
        if watch {
            let added =
                epoll::add(&waiting.outs, &to, EventData::new_u64(self.name), EventFlags::OUT);
            if let Err(error) = added {
                log::error!("nobody hears when there is room for a rank: {error}");
            }
            waiting.watched.fetch_add(1, Ordering::AcqRel);
        } else {
            let _ = epoll::delete(&waiting.outs, &to);
            waiting.watched.fetch_sub(1, Ordering::AcqRel);
            if std::mem::take(&mut writer.is_wanted) {
                // They may have been refused, and not sleep yet.
                waiting.bells.ring();
            }
        }
    }

    fn end(&self, waiting: &Waiting, writer: &mut Writer) {
        (writer.has_ended, writer.written) = (true, 0);
        writer.rest = Vec::new();
        self.watch(waiting, writer, false);
    }

    /// Nothing is written any more, nor read.
    pub(crate) fn close(&self, waiting: &Waiting) {
        self.end(waiting, &mut lock(&self.writer));
        [&self.to, &self.from].into_iter().for_each(Closable::close);
    }

    /// Nothing is written any more, and what has come is the last that is read.
    pub(crate) fn cut(&self, waiting: &Waiting) {
        self.end(waiting, &mut lock(&self.writer));
        self.shutdown(Shutdown::Both);
    }

    fn shutdown(&self, how: Shutdown) {
        // It fails where the other end has gone.
        let _ = self.to.get().map(|to| shutdown(to, how));
    }

    /// Takes nothing more but a farewell, behind what it has taken.
    pub(crate) fn begin_leaving(&self, waiting: &Waiting) {
        let mut writer = lock(&self.writer);
        if !writer.has_ended {
            writer.keep(&[&FAREWELL], 0);
            writer.has_ended = true;
            self.watch(waiting, &mut writer, false);
        }
    }

    /// Writes what a stream has that leaves; `Some` with what has room when there is more to write.
    pub(crate) fn go_on_leaving(&self) -> Option<Arc<OwnedFd>> {
        let to = self.to.get()?;
        let flushed = lock(&self.writer).flush(to.as_fd());
        matches!(flushed, Ok(false)).then_some(to)
    }

    /// Nobody takes the rest: the other end hears of the stream's.
    pub(crate) fn hang_up(&self) {
        self.shutdown(Shutdown::Write);
    }

    /// Reads what nobody will, no longer than until `end`, also where there is always more: else the
    /// kernel would throw away what was written once this is closed.
    pub(crate) fn drain(&self, end: Instant) {
        let Some(to) = self.to.get() else { return };
        let mut nowhere = [0; 4096];
        while Instant::now() < end
            && recv(&to, &mut nowhere, RecvFlags::DONTWAIT).is_ok_and(|(read, _)| read > 0)
        {
        }
    }
}

impl Writer {
    /// Writes what waits, and returns whether that was all.
    fn flush(&mut self, socket: BorrowedFd<'_>) -> Result<bool> {
        while self.written < self.rest.len() {
            match send_some(socket, &[IoSlice::new(&self.rest[self.written..])])? {
                0 => return Ok(false),
                sent => self.written += sent,
            }
        }
        self.rest.clear();
        self.written = 0;
        Ok(true)
    }

    /// Keeps what of `parts` is behind so many bytes.
    fn keep(&mut self, parts: &[&[u8]], mut sent: usize) {
        if self.written >= QUEUE_BYTES {
            self.rest.drain(..self.written);
            self.written = 0;
        }
        for part in parts {
            let skipped = sent.min(part.len());
            self.rest.extend_from_slice(&part[skipped..]);
            sent -= skipped;
        }
    }

    /// Writes the first of `frames`, each of which is given by its parts, and keeps the rest of the
    /// last; returns how many.
    fn write<'a>(
        &mut self,
        socket: BorrowedFd<'_>,
        frames: &[impl AsRef<[&'a [u8]]>],
    ) -> Result<usize> {
        let parts: Vec<_> =
            frames.iter().flat_map(AsRef::as_ref).map(|part| IoSlice::new(part)).collect();
        let mut sent = send_some(socket, &parts)?;
        for (taken, frame) in frames.iter().enumerate() {
            if sent == 0 {
                return Ok(taken);
            }
            let length: usize = frame.as_ref().iter().map(|part| part.len()).sum();
            if sent < length {
                self.keep(frame.as_ref(), sent);
                return Ok(taken + 1);
            }
            sent -= length;
        }
        Ok(frames.len())
    }

    /// Writes frames of the first of `runs`; returns how many bytes of these they have.
    fn put(&mut self, socket: BorrowedFd<'_>, runs: &[Run<'_>]) -> Result<usize> {
        let frames = put_frames(runs);
        let parts: Vec<Vec<_>> = frames.iter().map(|frame| frame.parts().collect()).collect();
        let written = self.write(socket, &parts)?;
        Ok(frames[..written].iter().map(PutFrame::puts).sum())
    }
}

/// Returns how many bytes were written, 0 where there is no room.
fn send_some(socket: BorrowedFd<'_>, parts: &[IoSlice<'_>]) -> Result<usize> {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    loop {
        match sendmsg(socket, parts, &mut SendAncillaryBuffer::default(), flags) {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(0),
            sent => return sent,
        }
    }
}

/// What reads a stream.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    buffer: Vec<u8>,
    /// What of it was read from the stream and not taken.
    start: usize,
    end: usize,
    /// Where the next bytes of a put go, and how many there are.
    put: Option<(u64, usize)>,
    /// Whether another put may follow one.
    may_put: bool,
}

/// What came of reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Came {
    /// Nothing; later, something.
    Nothing,
    /// Something, and whether bytes of a put were among it.
    Some(bool),
    /// The end.
    End,
}

/// What is taken next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing yet.
    Nothing,
    /// A message, for which `run` was called.
    Message,
    /// A farewell: nothing follows.
    Bye,
}

impl Reader {
    /// Reads once what has come.
    pub(crate) fn fill(&mut self, source: BorrowedFd<'_>, segment: &Segment) -> Came {
        if self.buffer.is_empty() {
            self.buffer = vec![0; BUFFER_BYTES];
        }
        let is_put = self.put.is_some();
        let read = match self.put {
            Some((at, bytes)) => {
                // All before was taken.
                (self.start, self.end) = (0, 0);
                segment.read_from(source, (at, bytes), &mut self.buffer[..BEHIND_BYTES])
            }
            None => {
                self.make_room();
                // The bytes of a put go to the segment: no more is read than what says where.
                let is_front = std::mem::take(&mut self.may_put) && self.end == 0;
                let room = if is_front { BEHIND_BYTES } else { self.buffer.len() };
                let room = &mut self.buffer[self.end..room];
                if room.is_empty() {
                    // A handler that panicked has left messages.
                    return Came::Some(false);
                }
                recv(source, room, RecvFlags::DONTWAIT).map(|(read, _)| read)
            }
        };
        match read {
            Err(Errno::AGAIN | Errno::INTR) => Came::Nothing,
            Ok(0) | Err(_) => Came::End,
            Ok(read) => {
                self.end += self.put_on(read);
                Came::Some(is_put)
            }
        }
    }

    /// Whether bytes of a put are to come.
    pub(crate) fn is_in_put(&self) -> bool {
        self.put.is_some()
    }

    /// So many bytes have come, those of a put first; returns how many were none.
    fn put_on(&mut self, read: usize) -> usize {
        let Some((at, bytes)) = self.put else { return read };
        let put = read.min(bytes);
        self.put = (put < bytes).then_some((at + put as u64, bytes - put));
        read - put
    }

    /// Moves what is there to the front, unless the longest message has room behind.
    fn make_room(&mut self) {
        if self.buffer.len() - self.start < FRONT_BYTES + MEDIUM_BYTES || self.start == self.end {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
    }

    /// Takes frames until one is a message, with which it calls `run`.
    pub(crate) fn next(
        &mut self,
        segment: &Segment,
        run: &mut dyn FnMut(Message<'_>),
    ) -> std::result::Result<Next, Broken> {
        let limits = Limits { medium_bytes: MEDIUM_BYTES, segment_bytes: segment.bytes() };
        loop {
            let bytes = &self.buffer[self.start..self.end];
            let Some(front) = Front::of(bytes, limits)? else { return Ok(Next::Nothing) };
            // Before a handler runs, which may panic.
            self.start += front.length();
            match front.with(bytes, |frame| match frame {
                Frame::Message(message) => {
                    run(message);
                    Step::Done(Next::Message)
                }
                Frame::Put { at, bytes } => Step::Put(at, bytes as usize),
                Frame::Bye => Step::Done(Next::Bye),
            }) {
                Step::Done(next) => return Ok(next),
                Step::Put(at, bytes) => self.begin(segment, at, bytes)?,
            }
        }
    }

    /// Begins a put with what of it has come.
    fn begin(
        &mut self,
        segment: &Segment,
        at: u64,
        bytes: usize,
    ) -> std::result::Result<(), Broken> {
        self.put = Some((at, bytes));
        self.may_put = true;
        let come = &self.buffer[self.start..self.end];
        let length = come.len();
        segment.write(at, &come[..length.min(bytes)]).ok_or(Broken)?;
        self.start += length - self.put_on(length);
        Ok(())
    }
}

enum Step {
    Done(Next),
    Put(u64, usize),
}
