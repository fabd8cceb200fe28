//! Rects on CUDA's streams.

use crate::device::Device;
use crate::driver::{Buffer, Event, Failure, Stream};
use channel::accelerator::{
    Batch, Copier, Device as _, Ends, Health, Over, Queued, Rect, RectRules, Rects,
};
use channel::model::{ChannelError, CopyList};
use std::sync::{Arc, Mutex, PoisonError};

/// The streams of a channel, and its events that are not in use. Both are made once.
#[derive(Debug)]
pub(crate) struct Streams {
    device: Device,
    streams: Vec<Arc<Stream>>,
    events: Arc<Mutex<Vec<Event>>>,
}

impl Streams {
    /// So many streams of `device`, at least one.
    pub(crate) fn new(device: &Device, streams: usize) -> Result<Self, ChannelError> {
        device.health().check()?;
        let new = |_| Stream::new(device.context()).map(Arc::new);
        let streams: Result<_, _> = (0..streams.max(1)).map(new).collect();
        let streams = streams.map_err(|failure| device.failed(&failure))?;
        Ok(Streams { device: device.clone(), streams, events: Arc::default() })
    }

    fn event(&self) -> Result<Event, Failure> {
        let free = self.events.lock().unwrap_or_else(PoisonError::into_inner).pop();
        free.map_or_else(|| Event::new(self.device.context()), Ok)
    }
}

fn give_back(events: &Mutex<Vec<Event>>, event: Option<Event>) {
    events.lock().unwrap_or_else(PoisonError::into_inner).extend(event);
}

/// Copies of one stream, the last of which an event lies behind.
#[derive(Debug)]
pub(crate) struct Commands {
    device: Device,
    stream: Arc<Stream>,
    /// There until the batch is dropped.
    event: Option<Event>,
    events: Arc<Mutex<Vec<Event>>>,
}

impl Batch for Commands {
    fn when_over(&self, over: Over) -> Result<(), ChannelError> {
        self.stream.when_over(over).map_err(|failure| self.device.failed(&failure))
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
        self.streams.len()
    }

    fn health(&self) -> &Health {
        self.device.health()
    }

    fn has(&self, memory: &Buffer) -> bool {
        memory.is_of(self.device.context())
    }

    unsafe fn copy(
        &mut self,
        queue: usize,
        ends: Ends<'_, Buffer>,
        rects: &mut dyn Iterator<Item = Rect>,
    ) -> Queued<Commands> {
        let event = match self.event() {
            Ok(event) => event,
            Err(failure) => {
                return Queued { count: 0, batch: None, result: Err(self.device.failed(&failure)) };
            }
        };
        let stream = Arc::clone(&self.streams[queue]);
        let (mut count, mut result) = (0, Ok(()));
        for rect in rects {
            // SAFETY: the caller's promise; the event, which is recorded behind all copies, or the
            // stream is waited for before the batch is over.
            result = unsafe { stream.copy(ends, &rect) };
            if result.is_err() {
                break;
            }
            count += 1;
        }
        if count > 0
            && let Err(failure) = stream.record(&event)
        {
            // Nothing says when these are over but their stream; this is as rare as a lost device.
            let _ = stream.finish();
            (count, result) = (0, result.and(Err(failure)));
        }
        let result = result.map_err(|failure| self.device.failed(&failure));
        if count == 0 {
            give_back(&self.events, Some(event));
            return Queued { count, batch: None, result };
        }
        let events = Arc::clone(&self.events);
        let batch = Commands { device: self.device.clone(), stream, event: Some(event), events };
        Queued { count, batch: Some(batch), result }
    }

    fn flush(&mut self) -> Result<(), ChannelError> {
        // A stream begins by itself.
        Ok(())
    }
}
