//! What works on bare addresses: the buffers of a case, the kernels, plain copies, and libraries
//! that are loaded at run time.
//!
//! **Hazard.** All contenders of a case move bytes between the same two buffers, through addresses
//! that no borrow covers. **Guarantee.** [`Buffers`] outlive every run that is made for them, which
//! their lifetime says; they are not `Sync`, so that one run goes at a time; each run stays within
//! the bytes that its maker checked. **Structure.** `memory` owns the buffers, `moves` has the
//! kernels and the plain copies, `counted` the kernels alone, `stream` the streaming one, `pattern` and
//! `lines` the traffic of a copy without the copy, and each library stands alone. `device` has memory of its own, on a
//! device and on the host.

mod counted;
mod device;
mod hptt;
mod library;
mod lines;
mod memory;
mod mkl;
mod moves;
mod onednn;
mod pattern;
mod stream;

pub(crate) use counted::counted;
pub(crate) use device::{CudaDevice, Host, OpenClDevice, RawDevice, Rows, Way};
pub(crate) use hptt::Hptt;
pub(crate) use lines::Lines;
pub(crate) use memory::Buffers;
pub(crate) use mkl::Mkl;
pub(crate) use moves::{Move, Moves};
pub(crate) use onednn::OneDnn;
pub(crate) use pattern::Pattern;
pub(crate) use stream::HAS_STREAM;
