//! Host memory: pools of it, and the channel that copies inside it.
//!
//! **Hazard.** Lanes copy through raw addresses, while other threads own the memory. **Guarantee.**
//! A lane holds its job, and so both regions, until the last byte is copied; bounds are checked
//! before the first. **Structure.** [`HostProvider`] maps memory; [`MemcpyChannel`] hands copies
//! to its lanes, which sleep when there is nothing to do; [`run_here`] copies on the caller's
//! thread; [`Limits`] and [`Cores`] say what the process may use, [`last_cache_bytes`] what the
//! machine has.

mod caches;
mod copy;
mod cores;
mod lanes;
mod limits;
mod memcpy;
mod pool;

pub use caches::last_cache_bytes;
pub use copy::run_here;
pub use cores::{Cores, NumaNode};
pub use limits::Limits;
pub use memcpy::{MemcpyChannel, MemcpyConfig, SPLIT_BYTES, cut, stores};
pub use pool::{HostProvider, Pages};
