//! Accelerators by OpenCL: their memory (FBM), host memory near to them (ZCM), and the channels
//! GPUWrite, GPURead, GPUCopy and GPUConvert.
//!
//! **Hazard.** A device moves bytes long after it was asked to, calls back on threads of its own,
//! and may be lost at any time. **Guarantee.** A request holds its regions until the last of its
//! commands is over; no thread waits for a transfer, and nothing spins; what fails is the error of
//! that request. **Structure.** [`find`] says which devices there are: the library is loaded then,
//! and its absence is a value. Each [`Device`] has a context of its own, so that memories of two
//! never mix. What a channel does stands in [`channel::accelerator`]; `copier` has OpenCL's queues
//! copy the rects, cut into such `parts` as implementations take, and launch the kernels that it chooses,
//! and `cl` owns OpenCL's objects.

mod cl;
mod copier;
mod device;
mod error;
mod parts;

pub use device::{Absent, Device, DeviceInfo, DeviceKind, Found, find};

#[cfg(test)]
#[path = "../tests/common/mod.rs"]
mod common;
// So that unit tests share the helpers of the others.
#[cfg(test)]
extern crate self as isometry_channel_opencl;
