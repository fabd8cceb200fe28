//! Rects, and kernels, on CUDA's streams.

use crate::device::Device;
use crate::driver::{Buffer, Context, Event, Failure, Function, Pinned, Stream};
use crate::error::kind_of;
use channel::Region;
use channel::accelerator::{
    Batch, Copier, Device as _, Ends, Health, Kernel, Launch, Launcher, Over, Queued, Rect,
    RectRules, Rects,
};
use channel::model::{ChannelError, ChannelErrorKind, CopyList};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The streams of a channel, its events that are not in use, and the kernels that it has launched. All
/// are made, or looked for, once.
#[derive(Debug)]
pub(crate) struct Streams {
    device: Device,
    queues: Vec<Arc<Queue>>,
    events: Arc<Mutex<Vec<Event>>>,
    /// They are there as long as the device.
    functions: HashMap<Kernel, Function>,
}

/// A stream that moves bytes, and one that tells when. What is queued behind a call waits until that has
/// returned, which takes as long as to move a megabyte: so calls have a stream of their own.
#[derive(Debug)]
struct Queue {
    work: Stream,
    calls: Stream,
}

impl Queue {
    fn new(context: &Arc<Context>) -> Result<Self, Failure> {
        Ok(Queue { work: Stream::new(context)?, calls: Stream::new(context)? })
    }
}

impl Streams {
    /// So many queues of `device`, at least one.
    pub(crate) fn new(device: &Device, queues: usize) -> Result<Self, ChannelError> {
        device.health().check()?;
        let new = |_| Queue::new(device.context()).map(Arc::new);
        let queues: Result<_, _> = (0..queues.max(1)).map(new).collect();
        let queues = queues.map_err(|failure| device.failed(&failure))?;
        let (events, functions) = (Arc::default(), HashMap::new());
        Ok(Streams { device: device.clone(), queues, events, functions })
    }

    /// Asks a stream for commands, one after the other until one is refused, and records an event behind
    /// them.
    fn queued<C>(
        &self,
        queue: usize,
        commands: &mut dyn Iterator<Item = C>,
        mut ask: impl FnMut(&Stream, C) -> Result<(), ChannelError>,
    ) -> Queued<Commands> {
        let event = match self.event() {
            Ok(event) => event,
            Err(failure) => {
                return Queued { count: 0, batch: None, result: Err(self.device.failed(&failure)) };
            }
        };
        let queue = Arc::clone(&self.queues[queue]);
        let (mut count, mut result) = (0, Ok(()));
        for command in commands {
            result = ask(&queue.work, command);
            if result.is_err() {
                break;
            }
            count += 1;
        }
        if count > 0
            && let Err(failure) = queue.work.record(&event)
        {
            // Nothing says when these are over but their stream; this is as rare as a lost device.
            let _ = queue.work.finish();
            (count, result) = (0, result.and(Err(self.device.failed(&failure))));
        }
        if count == 0 {
            give_back(&self.events, Some(event));
            return Queued { count, batch: None, result };
        }
        let events = Arc::clone(&self.events);
        let batch = Commands { device: self.device.clone(), queue, event: Some(event), events };
        Queued { count, batch: Some(batch), result }
    }

    /// The error that a refused copy is. A call that names two contexts may answer what is wrong with either: it
    /// is the other device that is lost where this one takes calls.
    fn refused(&self, ends: Ends<'_, Buffer>, failure: &Failure) -> ChannelError {
        let kind = kind_of(failure.code);
        if let Ends::Copy(_, to) = ends
            && let Some(peer) = self.peer(to)
            && kind == ChannelErrorKind::DeviceLost
            && Event::new(self.device.context()).is_ok()
        {
            return peer.failed(kind, failure);
        }
        self.device.failed(failure)
    }

    fn event(&self) -> Result<Event, Failure> {
        let free = self.events.lock().unwrap_or_else(PoisonError::into_inner).pop();
        free.map_or_else(|| Event::new(self.device.context()), Ok)
    }
}

fn give_back(events: &Mutex<Vec<Event>>, event: Option<Event>) {
    events.lock().unwrap_or_else(PoisonError::into_inner).extend(event);
}

/// Commands of one queue, the last of which an event lies behind.
#[derive(Debug)]
pub(crate) struct Commands {
    device: Device,
    queue: Arc<Queue>,
    /// There until the batch is dropped.
    event: Option<Event>,
    events: Arc<Mutex<Vec<Event>>>,
}

impl Batch for Commands {
    fn when_over(&self, over: Over) -> Result<(), ChannelError> {
        let calls = &self.queue.calls;
        let waits = self.event.as_ref().map_or(Ok(()), |event| calls.wait_for(event));
        let called = waits.and_then(|()| calls.when_over(|_| over()));
        called.map_err(|failure| self.device.failed(&failure))
    }

    fn is_over(&self) -> bool {
        self.event.as_ref().is_none_or(Event::is_over)
    }

    fn wait(&mut self) -> Result<(), ChannelError> {
        let over = self.event.as_ref().map_or(Ok(()), Event::wait);
        over.map_err(|failure| self.device.failed(&failure))
    }
}

impl Drop for Commands {
    fn drop(&mut self) {
        // Whoever wanted to know has asked.
        let _ = self.wait();
        give_back(&self.events, self.event.take());
    }
}

impl Copier for Streams {
    type Memory = Buffer;
    type Commands = Rects;
    type Batch = Commands;

    fn commands(&self, list: CopyList, bases: (u64, u64), in_place: bool) -> Rects {
        let most_pitch_bytes = self.device.info().most_pitch_bytes;
        let rules = RectRules { most_pitch_bytes, equal_pitches_in_place: false };
        Rects::new(list, bases, rules, in_place)
    }

    fn queues(&self) -> usize {
        self.queues.len()
    }

    fn health(&self) -> &Health {
        self.device.health()
    }

    fn has(&self, memory: &Buffer) -> bool {
        memory.is_of(self.device.context())
    }

    fn peer(&self, memory: &Buffer) -> Option<Arc<Health>> {
        let (own, there) = (self.device.context(), memory.context());
        let peers = own.shares_driver(there).then(|| self.device.peers())?;
        peers.get(&there.ordinal()).cloned()
    }

    unsafe fn copy(
        &mut self,
        queue: usize,
        ends: Ends<'_, Buffer>,
        rects: &mut dyn Iterator<Item = Rect>,
    ) -> Queued<Commands> {
        self.queued(queue, rects, |stream, rect| {
            // SAFETY: the caller's promise; the event behind all copies, or the stream, is waited for
            // before the batch is over.
            let copied = unsafe { stream.copy(ends, &rect) };
            copied.map_err(|failure| self.refused(ends, &failure))
        })
    }

    fn flush(&mut self) -> Result<(), ChannelError> {
        // A stream begins by itself.
        Ok(())
    }
}

impl Launcher for Streams {
    fn has_pinned(&self, host: &Region) -> bool {
        let (pinned, span) = (host.view::<Pinned>(), host.host_span());
        let is_reached =
            |(pinned, span): (&Pinned, _)| pinned.is_reached(self.device.context(), span);
        pinned.zip(span).is_some_and(is_reached)
    }

    unsafe fn launch(
        &mut self,
        queue: usize,
        ends: Ends<'_, Buffer>,
        launches: &mut dyn Iterator<Item = Launch>,
    ) -> Queued<Commands> {
        // Out of the streams' way.
        let mut functions = std::mem::take(&mut self.functions);
        let queued = self.queued(queue, launches, |stream, launch| {
            let function = function(&self.device, &mut functions, launch.kernel);
            // SAFETY: the device has the module, and the stream is of its context; the caller's promise,
            // and the event behind all launches, or the stream, is waited for before the batch is over.
            let launched = function.and_then(|it| unsafe { stream.launch(it, ends, &launch) });
            launched.map_err(|failure| self.device.failed(&failure))
        });
        self.functions = functions;
        queued
    }
}

/// The function that `kernel` is, looked for where it was not before.
fn function(
    device: &Device,
    functions: &mut HashMap<Kernel, Function>,
    kernel: Kernel,
) -> Result<Function, Failure> {
    if let Some(found) = functions.get(&kernel) {
        return Ok(*found);
    }
    let found = device.kernels()?.function(&kernel.name())?;
    functions.insert(kernel, found);
    Ok(found)
}
