//! The values that every layer of Isometry speaks in.
//!
//! Nothing here moves a byte, reads a clock or knows how another layer behaves: identifiers,
//! index spaces, field spaces, layouts, canonical copies, throughput functions, the topology of a
//! cluster, plans, requests, completions and errors. All of it is `Debug + Clone + PartialEq`, so
//! that any layer's input and output can be printed, compared and stored in a test.
//!
//! The terms are those of the Isometry paper (Jia et al., ICS '18, sections 2 to 4).
#![forbid(unsafe_code)]

mod copy;
mod error;
mod field;
mod id;
mod layout;
mod plan;
mod request;
mod space;
mod throughput;
mod time;
mod topology;

pub use copy::{CopyDim, CopyList, FieldCopy, MOST_LOOPS, NdCopy, ShapeClass, Stride};
pub use error::{ChannelError, ChannelErrorKind, ModelError, Outcome, TransferError};
pub use field::{Field, FieldSpace};
pub use id::{
    ChannelId, FenceId, MemoryId, NodeId, Priority, RegionId, RequestId, TransferId, WireId,
};
pub use layout::{Component, Layout};
pub use plan::{Algorithm, Alternative, Bound, Buffer, CostModel, Hop, Limit, Plan, SearchReport};
pub use request::{Completion, CopyWork, Place, Request, Work};
pub use space::{Dim, IndexSpace, MAX_DIMS, Selection, Span};
pub use throughput::{Curves, Throughput};
pub use time::Time;
pub use topology::{
    Channel, ChannelKind, Crossover, Link, LinkEnd, Memory, MemoryKind, NodeClass, Topology, Wire,
};

#[cfg(test)]
mod tests;
