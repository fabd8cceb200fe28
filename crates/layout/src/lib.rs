//! Layouts, addresses, and any pair of them as canonical copies (paper, sections 2 and 4.2).
//!
//! Everything here is a pure function over values of `model`. [`Placement`] says where an instance
//! keeps its entries, [`Part`] restricts it to a box, [`Stream`] is the payload of a box in the
//! order of a layout, and [`copies`] turns any two of these into a short list of N-D strided
//! copies, the one form in which the other layers move bytes.
#![forbid(unsafe_code)]

mod bound;
mod canon;
mod class;
mod copies;
mod digits;
mod error;
#[cfg(feature = "serde")]
mod form;
mod lattice;
mod merge;
pub mod oracle;
mod order;
mod overlap;
mod part;
mod placement;
mod short;
mod side;
mod sizes;
mod stream;
mod text;

pub use bound::most_pieces;
pub use class::{lies_in, shape_class, touched};
pub use copies::copies;
pub use error::{LayoutError, ParseError};
pub use lattice::{Lattice, Loop};
pub use model::{CopyDim, CopyList, FieldCopy, NdCopy, ShapeClass, Stride};
pub use part::Part;
pub use placement::Placement;
pub use side::Side;
pub use sizes::{Sizes, common_suffix, prefix_bytes, shuffle_bytes, suffix_bytes, total_bytes};
pub use stream::{Cell, Stream};
pub use text::{dim_names, parse};

#[cfg(test)]
mod tests;
