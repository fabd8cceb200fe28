//! Rects, and kernels, on OpenCL's queues.

use crate::cl::{Buffer, Event, Failure, Function, Queue, Shared};
use crate::device::Device;
use crate::error::When;
use crate::parts::{Bounds, parts};
use channel::Region;
use channel::accelerator::{
    Batch, Copier, Device as _, Ends, Health, Kernel, Launch, Launcher, Over, Queued, Rect,
    RectRules, Rects,
};
use channel::model::{ChannelError, CopyList};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// The longest way from row to row, as NVIDIA's CUDA has it. Its OpenCL moves other bytes, and says nothing, where
/// rows of either side are 4 GiB apart; 2 GiB are right there.
const MOST_PITCH_BYTES: usize = i32::MAX as usize;

/// The queues of a channel, and the kernels that it has launched: one channel's, since each keeps the
/// arguments of its next launch.
#[derive(Debug)]
pub(crate) struct Queues {
    device: Device,
    pub(crate) queues: Vec<Queue>,
    functions: HashMap<Kernel, Function>,
}

impl Queues {
    /// So many queues of `device`, at least one.
    pub(crate) fn new(device: &Device, queues: usize) -> Result<Self, ChannelError> {
        device.health().check()?;
        let queues: Result<_, _> =
            (0..queues.max(1)).map(|_| Queue::new(device.context())).collect();
        let queues = queues.map_err(|failure| device.failed(failure, When::Asked))?;
        Ok(Queues { device: device.clone(), queues, functions: HashMap::new() })
    }
}

/// The function that `kernel` is, made where it isn't there.
fn function<'a>(
    device: &Device,
    functions: &'a mut HashMap<Kernel, Function>,
    kernel: Kernel,
) -> Result<&'a mut Function, Failure> {
    Ok(match functions.entry(kernel) {
        Entry::Occupied(there) => there.into_mut(),
        Entry::Vacant(free) => free.insert(device.kernels()?.function(&kernel.name())?),
    })
}

/// Commands, one after the other on one queue. There is at least one.
#[derive(Debug)]
pub(crate) struct Commands {
    device: Device,
    events: Vec<Event>,
}

impl Commands {
    /// What became of asking for commands, one after the other until one is refused.
    fn queued(
        device: &Device,
        asked: impl Iterator<Item = Result<Event, Failure>>,
    ) -> Queued<Commands> {
        let (mut events, mut result) = (Vec::new(), Ok(()));
        for event in asked {
            match event {
                Ok(event) => events.push(event),
                Err(failure) => {
                    result = Err(device.failed(failure, When::Asked));
                    break;
                }
            }
        }
        let count = events.len();
        let batch = (count > 0).then(|| Commands { device: device.clone(), events });
        Queued { count, batch, result }
    }

    fn last(&self) -> &Event {
        self.events.last().expect("no batch is empty")
    }
}

impl Batch for Commands {
    fn when_over(&self, over: Over) -> Result<(), ChannelError> {
        let set = self.last().when_over(over);
        set.map_err(|failure| self.device.failed(failure, When::Asked))
    }

    fn is_over(&self) -> bool {
        self.events.iter().all(Event::is_over)
    }

    fn wait(&mut self) -> Result<(), ChannelError> {
        // Each fails by itself, and all of them tell of the device.
        let mut result = Ok(());
        for event in &self.events {
            let over = event.wait().map_err(|failure| self.device.failed(failure, When::Ran));
            result = result.and(over);
        }
        result
    }
}

impl Drop for Commands {
    fn drop(&mut self) {
        // Whoever wanted to know has asked.
        let _ = self.wait();
    }
}

impl Copier for Queues {
    type Memory = Buffer;
    type Commands = Rects;
    type Batch = Commands;

    fn commands(&self, list: CopyList, bases: (u64, u64), in_place: bool) -> Rects {
        let rules = RectRules { most_pitch_bytes: MOST_PITCH_BYTES, equal_pitches_in_place: true };
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

    unsafe fn copy(
        &mut self,
        queue: usize,
        ends: Ends<'_, Buffer>,
        rects: &mut dyn Iterator<Item = Rect>,
    ) -> Queued<Commands> {
        let (queue, bounds) = (&self.queues[queue], Bounds::of(ends));
        let rects = rects.flat_map(|rect| parts(rect, bounds));
        // SAFETY: the caller's promise.
        Commands::queued(&self.device, rects.map(|rect| unsafe { queue.copy(ends, &rect) }))
    }

    fn flush(&mut self) -> Result<(), ChannelError> {
        let flushed: Result<(), _> = self.queues.iter().try_for_each(Queue::flush);
        flushed.map_err(|failure| self.device.failed(failure, When::Asked))
    }
}

impl Launcher for Queues {
    fn has_pinned(&self, host: &Region) -> bool {
        let (shared, span) = (host.view::<Shared>(), host.host_span());
        let is_reached = |(shared, span): (&Shared, _)| {
            shared.is_of(self.device.context()) && shared.span().contains(span)
        };
        shared.zip(span).is_some_and(is_reached)
    }

    unsafe fn launch(
        &mut self,
        queue: usize,
        ends: Ends<'_, Buffer>,
        launches: &mut dyn Iterator<Item = Launch>,
    ) -> Queued<Commands> {
        let (queue, functions) = (&self.queues[queue], &mut self.functions);
        let asked = launches.map(|launch| {
            let function = function(&self.device, functions, launch.kernel)?;
            // SAFETY: the caller's promise.
            unsafe { queue.launch(function, ends, &launch) }
        });
        Commands::queued(&self.device, asked)
    }
}

#[cfg(test)]
mod kernels;
#[cfg(test)]
mod tests;
