//! What runs copies: the engine and its channels under one lock, and a thread that drives them.
//!
//! **Hazard.** A wake-up is lost and a copy hangs; or memory of others is dropped, or their code
//! called, under the lock, and two threads wait for each other. **Guarantee.** The driver sleeps
//! on descriptors that stay readable until what rang them is taken; what is not rung by a channel
//! (an earlier deadline, a new channel, the end) rings its bell. What ends is collected under the
//! lock, and told and dropped after it. **Structure.** [`Core`] is what the lock holds: engine,
//! channels, what is pending. [`Shared`] is the lock, the region table and the cache of plans,
//! which machines, instances and events hold. [`driver`] is the thread, [`telling`] what it and others do
//! at each step.

mod core;
mod driver;
mod fences;
mod shared;
mod tally;
mod telling;
mod urgency;

pub(crate) use self::core::{Core, NewChannel};
pub(crate) use driver::Driver;
pub(crate) use shared::{Clock, Shared, Submission};
pub(crate) use tally::Copies;
pub(crate) use urgency::Urgency;
