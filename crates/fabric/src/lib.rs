//! Processes that reach each other's memory: active messages, puts and gets (GASNet's core and
//! extended API), over conduits.
//!
//! **Hazard.** A peer dies, stops, or writes nonsense where it may write; two peers wait for each
//! other to make room. **Guarantee.** What a peer writes is copied out of shared memory before it is
//! looked at, and a peer that sends what can't be is [lost](ErrorKind::PeerLost), as one that died
//! is; whoever waits for it hears of that. Nothing is read or written outside what a peer gave.
//! Every queue has room for so much, and replies have queues of their own, so that they find room
//! whatever becomes of requests. **Structure.** A [`Fabric`] is one process's membership: it has
//! handlers, and segments that all may read and write. It speaks to a [`Conduit`], which carries
//! messages and may map segments; [`shm`] is that of processes on one machine, [`tcp`] that of others.
//! [`Config`] says who joins what. Where only pinned memory can be reached, [`firehose`] pins what is
//! used.

mod active;
mod atomic;
mod barrier;
mod conduit;
mod config;
mod error;
mod fabric;
pub mod firehose;
mod handle;
mod held;
mod locks;
mod meeting;
mod message;
mod nearby;
mod patience;
mod pieces;
mod pmix;
mod process;
mod progress;
mod remote;
mod scratch;
mod segment;
mod service;
pub mod shm;
mod slots;
mod standing;
mod strided;
pub mod tcp;
mod turn;
#[cfg(feature = "ucx")]
pub mod ucx;
mod windows;

use shm::sync;

pub use active::{Call, Handler, Handlers};
pub use atomic::Atomic;
pub use barrier::Barrier;
pub use conduit::{Capabilities, Conduit, Lost, Puts, Queue, Refusal, Run, Windows};
pub use config::{APART, CAPACITY, Config, Job, KEY, MOST_RANKS, PMIX, RANK, ROOT, SIZE, UCX};
pub use error::{Error, ErrorKind};
pub use fabric::Fabric;
pub use handle::{Handle, Region, Which};
pub use held::{HandlerSafe, HandlerSafeGuard, NoInterrupt};
pub use message::{MOST_ARGS, Message, Payload};
pub use patience::Patience;
pub use process::Process;
pub use segment::Segment;
pub use service::Service;
pub use strided::{runs, strided};
pub use windows::{Begin, Owner, Window, WindowRun};
// Peers are named by this.
pub use model;
