//! Files as memory of the kind DSK, and the channels between them and host memory.
//!
//! **Hazard.** The kernel reads and writes memory and files long after it was asked; disks fill
//! up, files shrink, descriptors bypass the page cache. **Guarantee.** A request holds its regions
//! until the kernel has let go of them; bytes of one page are never written both through the page
//! cache and around it; a file that is written appears whole, under its name, or not at all.
//! **Structure.** A request is walked into pieces (`pieces`), pieces that are neighbours in the
//! file join into spans (`span`), a span becomes operations and their segments (`plan`, `op`),
//! which io_uring (`ring`) or a few threads (`threads`) carry out. [`FileRegion`] is a file on its
//! way into a [`channel::Region`].

mod align;
mod aside;
mod disk;
mod error;
mod executor;
mod file;
mod flight;
mod listing;
mod op;
mod pieces;
mod plan;
mod provider;
mod ring;
mod scratch;
mod span;
mod threads;

pub use aside::clean_stale;
pub use disk::{DiskChannel, DiskConfig, Interface};
pub use file::{Cache, FileRegion};
pub use listing::{Operation, operations, operations_at_once};
pub use pieces::Direction;
pub use provider::DiskProvider;

#[cfg(test)]
mod adversary;
#[cfg(test)]
#[path = "../tests/common/mod.rs"]
mod common;
// So that unit tests share the helpers of the others.
#[cfg(test)]
extern crate self as isometry_channel_disk;
