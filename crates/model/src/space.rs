//! Index spaces and the parts of them that a copy moves (paper, section 2).

use crate::ModelError;
use std::ops::Range;
use std::sync::Arc;

/// The largest number of dimensions of an index space.
pub const MAX_DIMS: usize = 8;

/// One named dimension, half-open: the indices `lo..hi`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Dim {
    /// Unique within its index space.
    pub name: Arc<str>,
    /// The first index.
    pub lo: i64,
    /// One past the last index; `hi >= lo`.
    pub hi: i64,
}

impl Dim {
    /// The number of indices.
    #[must_use]
    pub fn extent(&self) -> u64 {
        self.hi.abs_diff(self.lo)
    }

    fn refuses(&self, asked: Range<i64>) -> ModelError {
        ModelError::Bounds { name: self.name.to_string(), asked, bounds: self.lo..self.hi }
    }
}

/// The set of entries of an instance: one to [`MAX_DIMS`] named dimensions, slowest first as in a
/// NumPy shape. The number of entries fits in 63 bits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct IndexSpace {
    dims: Vec<Dim>,
}

impl IndexSpace {
    /// An index space of `dims`, slowest first.
    ///
    /// # Errors
    /// [`ModelError::Rank`] for no dimension or more than [`MAX_DIMS`]; [`ModelError::DimName`]
    /// for a name that is empty, repeated, not made of letters, digits and `_`, or `F`;
    /// [`ModelError::Bounds`] where `hi < lo`; [`ModelError::TooLarge`] where the number of
    /// entries passes 63 bits.
    pub fn new(dims: Vec<Dim>) -> Result<Self, ModelError> {
        if dims.is_empty() || dims.len() > MAX_DIMS {
            return Err(ModelError::Rank { dims: dims.len() });
        }
        for (i, dim) in dims.iter().enumerate() {
            if !is_name(&dim.name) || dims[..i].iter().any(|d| d.name == dim.name) {
                return Err(ModelError::DimName { name: dim.name.to_string() });
            }
            if dim.hi < dim.lo {
                return Err(dim.refuses(dim.lo..dim.hi));
            }
        }
        check_entries(dims.iter().map(Dim::extent))?;
        Ok(IndexSpace { dims })
    }

    /// An index space of `(name, extent)` pairs, slowest first, all starting at 0.
    ///
    /// # Errors
    /// As [`IndexSpace::new`].
    pub fn of(dims: &[(&str, u64)]) -> Result<Self, ModelError> {
        let dim = |&(name, extent): &(&str, u64)| {
            let hi = i64::try_from(extent).map_err(|_| ModelError::TooLarge)?;
            Ok(Dim { name: name.into(), lo: 0, hi })
        };
        Self::new(dims.iter().map(dim).collect::<Result<_, _>>()?)
    }

    /// The dimensions, slowest first.
    #[must_use]
    pub fn dims(&self) -> &[Dim] {
        &self.dims
    }

    /// The number of dimensions.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.dims.len()
    }

    /// The extents, in the order of the dimensions.
    #[must_use]
    pub fn extents(&self) -> Vec<u64> {
        self.dims.iter().map(Dim::extent).collect()
    }

    /// The number of entries.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.dims.iter().map(Dim::extent).product()
    }

    /// The position of the dimension called `name`.
    #[must_use]
    pub fn position(&self, name: &str) -> Option<usize> {
        self.dims.iter().position(|d| &*d.name == name)
    }
}

/// The indices of one dimension that a copy touches, in the order in which it touches them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Span {
    /// The indices `lo..hi`.
    Range {
        /// The first index.
        lo: i64,
        /// One past the last index.
        hi: i64,
    },
    /// These indices, in this order: the pages of a cache, say. A source may repeat one.
    List(Arc<[i64]>),
}

impl Span {
    /// The number of indices.
    #[must_use]
    pub fn extent(&self) -> u64 {
        match self {
            Span::Range { lo, hi } => u64::try_from(hi.saturating_sub(*lo)).unwrap_or(0),
            Span::List(indices) => indices.len() as u64,
        }
    }

    /// The smallest range that holds all of its indices.
    #[must_use]
    pub fn hull(&self) -> Range<i64> {
        match self {
            Span::Range { lo, hi } => *lo..*hi,
            Span::List(list) => {
                let (least, most) = (list.iter().min(), list.iter().max());
                least.map_or(0, |&i| i)..most.map_or(0, |i| i.saturating_add(1))
            }
        }
    }
}

/// A box of an index space: one [`Span`] for each dimension, in absolute indices. The number of
/// entries fits in 63 bits, however often a list repeats an index.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Selection {
    spans: Vec<Span>,
}

impl Selection {
    /// The whole of `space`.
    #[must_use]
    pub fn all(space: &IndexSpace) -> Self {
        let span = |d: &Dim| Span::Range { lo: d.lo, hi: d.hi };
        Selection { spans: space.dims().iter().map(span).collect() }
    }

    /// The selection of `spans` in `space`.
    ///
    /// # Errors
    /// [`ModelError::Rank`] where the number of spans differs from the space's rank;
    /// [`ModelError::Bounds`] where an index lies outside the space or a range runs backwards;
    /// [`ModelError::TooLarge`] where the number of entries passes 63 bits.
    pub fn new(space: &IndexSpace, spans: Vec<Span>) -> Result<Self, ModelError> {
        if spans.len() != space.rank() {
            return Err(ModelError::Rank { dims: spans.len() });
        }
        for (dim, span) in space.dims().iter().zip(&spans) {
            let inside = match span {
                Span::Range { lo, hi } => dim.lo <= *lo && lo <= hi && *hi <= dim.hi,
                Span::List(list) => list.iter().all(|i| (dim.lo..dim.hi).contains(i)),
            };
            if !inside {
                return Err(dim.refuses(span.hull()));
            }
        }
        check_entries(spans.iter().map(Span::extent))?;
        Ok(Selection { spans })
    }

    /// The spans, in the order of the space's dimensions.
    #[must_use]
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// The extents of the box.
    #[must_use]
    pub fn extents(&self) -> Vec<u64> {
        self.spans.iter().map(Span::extent).collect()
    }
}

/// Checks that the product of `extents` fits in 63 bits, whatever part of them is taken.
fn check_entries(mut extents: impl Iterator<Item = u64>) -> Result<(), ModelError> {
    let entries = extents.try_fold(1u64, |all, extent| all.checked_mul(extent.max(1)));
    let fits = entries.is_some_and(|entries| i64::try_from(entries).is_ok());
    if fits { Ok(()) } else { Err(ModelError::TooLarge) }
}

/// Whether `name` is a dimension's: an identifier, and not what layouts call the fields.
fn is_name(name: &str) -> bool {
    name != "F"
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
