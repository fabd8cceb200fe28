//! Accelerators by CUDA's driver: their memory (FBM), host memory pinned for them (ZCM), and the
//! channels GPUWrite, GPURead, GPUCopy and GPUConvert.
//!
//! **Hazard.** A device moves bytes long after it was asked to, the driver calls back on threads of its
//! own, and one fault of a device ends all that a process has on it. **Guarantee.** A request holds its
//! regions until the last of its commands is over; no thread waits for a transfer, and nothing spins;
//! what fails is the error of that request, and a device that is lost says so to all later ones.
//! **Structure.** [`find`] says which devices there are: the library is loaded then, and its absence is
//! a value. What a channel does stands in [`channel::accelerator`]; `copier` has streams copy the rects
//! and launch the kernels that it chooses, `interop` is what other libraries share, and `driver` owns CUDA's
//! objects.

mod copier;
mod device;
mod driver;
mod error;
mod interop;

pub use device::{Absent, Device, DeviceInfo, Found, find, find_in};
