//! Kernels on OpenCL's queues.

use crate::cl::{Buffer, Failure, Function};
use crate::copier::{Commands, Queues};
use crate::device::Device;
use channel::Bell;
use channel::accelerator::{Copier, Ends, Health, Kernel, Launch, Launches, Preparation, Queued};
use channel::model::{ChannelError, CopyList};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// The queues of a channel that converts, and its kernels: one channel's, since each keeps the
/// arguments of its next launch.
#[derive(Debug)]
pub(crate) struct Converter {
    device: Device,
    queues: Queues,
    /// Those that were launched before.
    functions: HashMap<Kernel, Function>,
    compiling: Preparation,
}

impl Converter {
    /// So many queues of `device`, at least one. Nothing is compiled before the first launch.
    pub(crate) fn new(device: &Device, queues: usize) -> Result<Self, ChannelError> {
        let queues = Queues::new(device, queues)?;
        let (functions, compiling) = (HashMap::new(), Preparation::default());
        Ok(Converter { device: device.clone(), queues, functions, compiling })
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

impl Copier for Converter {
    type Memory = Buffer;
    type Commands = Launches;
    type Batch = Commands;

    fn commands(&self, list: CopyList, bases: (u64, u64), _in_place: bool) -> Launches {
        Launches::new(list, bases)
    }

    fn queues(&self) -> usize {
        self.queues.queues()
    }

    fn health(&self) -> &Health {
        self.queues.health()
    }

    fn has(&self, memory: &Buffer) -> bool {
        self.queues.has(memory)
    }

    fn is_ready(&mut self, bell: &Arc<Bell>) -> bool {
        if !self.device.knows_kernels() {
            let device = self.device.clone();
            // Why there are none is told by its health.
            self.compiling.begin(bell, move || _ = device.kernels());
        }
        self.device.knows_kernels()
    }

    fn get_ready(&mut self) {
        self.compiling.wait();
    }

    unsafe fn copy(
        &mut self,
        queue: usize,
        ends: Ends<'_, Buffer>,
        launches: &mut dyn Iterator<Item = Launch>,
    ) -> Queued<Commands> {
        let Ends::Copy(src, dst) = ends else { unreachable!("a channel inside a device") };
        let (queue, functions) = (&self.queues.queues[queue], &mut self.functions);
        let asked = launches.map(|launch| {
            let function = function(&self.device, functions, launch.kernel)?;
            // SAFETY: the caller's promise.
            unsafe { queue.launch(function, (src, dst), &launch) }
        });
        Commands::queued(&self.device, asked)
    }

    fn flush(&mut self) -> Result<(), ChannelError> {
        self.queues.flush()
    }
}

#[cfg(test)]
mod tests;
