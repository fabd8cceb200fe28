//! Kernels on OpenCL's queues.

use crate::cl::{Buffer, Function};
use crate::copier::{Commands, Queues};
use crate::device::Device;
use crate::error::When;
use channel::accelerator::{Copier, Ends, Health, Kernel, Launch, Launches, Queued};
use channel::model::{ChannelError, CopyList};
use std::collections::HashMap;

/// The queues of a channel that converts, and its kernels: one channel's, since each keeps the
/// arguments of its next launch.
#[derive(Debug)]
pub(crate) struct Converter {
    device: Device,
    queues: Queues,
    functions: HashMap<Kernel, Function>,
}

impl Converter {
    /// So many queues of `device`, at least one.
    pub(crate) fn new(device: &Device, queues: usize) -> Result<Self, ChannelError> {
        let queues = Queues::new(device, queues)?;
        let function = |kernel: Kernel| {
            let function = device.kernels().and_then(|program| program.function(&kernel.name()));
            Ok((kernel, function.map_err(|failure| device.failed(failure, When::Asked))?))
        };
        let functions = Kernel::all().map(function).collect::<Result<_, _>>()?;
        Ok(Converter { device: device.clone(), queues, functions })
    }
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

    unsafe fn copy(
        &mut self,
        queue: usize,
        ends: Ends<'_, Buffer>,
        launches: &mut dyn Iterator<Item = Launch>,
    ) -> Queued<Commands> {
        let Ends::Copy(src, dst) = ends else { unreachable!("a channel inside a device") };
        let (queue, functions) = (&self.queues.queues[queue], &mut self.functions);
        let asked = launches.map(|launch| {
            let function = functions.get_mut(&launch.kernel).expect("all kernels are there");
            // SAFETY: the caller's promise.
            unsafe { queue.launch(function, (src, dst), &launch) }
        });
        Commands::queued(&self.device, asked)
    }

    fn flush(&mut self) -> Result<(), ChannelError> {
        self.queues.flush()
    }
}
