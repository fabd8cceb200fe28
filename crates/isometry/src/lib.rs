//! Moves data between any two memories of a machine, in any layout, on a path that it chooses.
//!
//! A [`Machine`] knows its memories and the channels between them, with measured curves. An
//! [`Instance`] is an array in one of them: allocated, wrapped in place, or a file.
//! [`Machine::copy`] plans a path from one instance to another, runs it pipelined through small
//! buffers, and returns an [`Event`].
//!
//! ```
//! use isometry::{Array, CopyOptions, Machine};
//!
//! let machine = Machine::open()?;
//! let pixels = Array::of(&[("y", 3), ("x", 4)], "<u2")?;
//! let rows = machine.empty(pixels.clone(), "sys")?;
//! let columns = machine.empty(pixels.laid_out("<F, y, x>")?, "sys")?;
//! rows.fill(&(0..24).collect::<Vec<u8>>())?;
//! let event = machine.copy(&rows, &columns, &CopyOptions::with_priority(1))?;
//! event.wait(None)?;
//! assert_eq!(columns.to_vec()?[..6], [0, 1, 8, 9, 16, 17]);
//! # Ok::<(), isometry::Error>(())
//! ```

mod accelerators;
mod array;
mod boxes;
mod builder;
mod copy;
mod discover;
mod disks;
mod error;
mod event;
mod file;
mod instance;
mod interop;
mod joined;
mod machine;
mod matching;
mod memory;
mod metrics;
mod nodes;
mod planned;
mod prepare;
mod probe;
mod recorded;
mod report;
mod reshard;
mod runtime;
mod size;
mod status;
mod trace;
mod verify;
mod view;
mod wake;

pub use accelerators::{Accelerators, Cuda};
pub use array::Array;
pub use builder::MachineBuilder;
pub use copy::CopyOptions;
pub use error::{ArgumentError, Error, ErrorKind, Mismatch};
pub use event::Event;
pub use file::FileOptions;
pub use instance::Instance;
pub use interop::StreamFence;
pub use machine::Machine;
pub use memory::Foreign;
pub use planned::{Planned, plan_json, report_json};
pub use report::CopyReport;
pub use size::parse_size;
pub use status::{NodeStatus, StagingStatus, Status, TransferStatus};
// What the signatures above speak in.
pub use {channel, cluster, engine, fabric, files, layout, model, planner, wire};
