//! Layout vectors as values (paper, section 2). Parsing, sizes and addresses are the `layout`
//! crate's.

use crate::{IndexSpace, ModelError};
use std::{fmt, sync::Arc};

/// One element of a layout vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Component {
    /// `F`: the field space.
    Fields,
    /// `x`: a whole dimension, by its position in the index space.
    Whole(u8),
    /// `x_in=c`, `x_in2=c`, …: level 1, 2, … of a blocked dimension.
    Inner {
        /// The dimension's position in the index space.
        dim: u8,
        /// 1 is the innermost block; levels of a dimension count up without gaps.
        level: u8,
        /// How many of the level below make one of this; at least 1.
        size: u64,
    },
    /// `x_out`: what remains of a blocked dimension.
    Outer(u8),
}

impl Component {
    /// The dimension that the component counts along; none for `F`.
    #[must_use]
    pub fn dim(self) -> Option<usize> {
        match self {
            Component::Fields => None,
            Component::Whole(dim) | Component::Inner { dim, .. } | Component::Outer(dim) => {
                Some(usize::from(dim))
            }
        }
    }
}

/// A layout vector, fastest-varying component first: `F` exactly once, and each dimension of the
/// index space either whole or as blocks `x_in=…, x_in2=…` up to a level, and `x_out`.
///
/// Index `i` of dimension `x`, counted from its lower bound, is
/// `x_in + c1·(x_in2 + c2·(… + x_out))`, whatever the order in the vector. A clone shares the
/// components.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(into = "Vec<Component>", try_from = "Vec<Component>"))]
pub struct Layout {
    components: Arc<[Component]>,
}

impl Layout {
    /// The layout of `components`, fastest first, for an index space of `rank` dimensions.
    ///
    /// # Errors
    /// [`ModelError::Layout`] where `F` or a dimension is missing or repeated, a dimension is both
    /// whole and blocked, block levels have a gap or lack their outer part, or a block size is 0.
    pub fn new(
        components: impl IntoIterator<Item = Component>,
        rank: usize,
    ) -> Result<Self, ModelError> {
        let components: Arc<[Component]> = components.into_iter().collect();
        let wrong = |why: String| Err(ModelError::Layout { why });
        if components.iter().filter(|c| **c == Component::Fields).count() != 1 {
            return wrong("F must stand in a layout exactly once".into());
        }
        if let Some(dim) = components.iter().filter_map(|c| c.dim()).find(|&d| d >= rank) {
            return wrong(format!("there is no dimension {dim}"));
        }
        for dim in 0..rank {
            if let Some(why) = fault_of_dim(&components, dim) {
                return wrong(format!("dimension {dim} {why}"));
            }
        }
        Ok(Layout { components })
    }

    /// Fields innermost, then the dimensions from the last to the first: NumPy's C order.
    #[must_use]
    pub fn row_major(rank: usize) -> Self {
        let dims = (0..rank).rev().map(|d| Component::Whole(u8::try_from(d).unwrap_or(u8::MAX)));
        Layout { components: std::iter::once(Component::Fields).chain(dims).collect() }
    }

    /// The components, fastest first.
    #[must_use]
    pub fn components(&self) -> &[Component] {
        &self.components
    }

    /// The block sizes of dimension `dim`, innermost first; empty where it is whole.
    pub fn blocks(&self, dim: usize) -> impl Iterator<Item = u64> {
        (1..=u8::MAX).map_while(move |level| block_at(&self.components, dim, level))
    }

    /// The text form `<x_in=4, F, x_out>`, with the names of `space`.
    #[must_use]
    pub fn display<'a>(&'a self, space: &'a IndexSpace) -> impl fmt::Display + 'a {
        Named { layout: self, space }
    }
}

#[cfg(feature = "serde")]
impl From<Layout> for Vec<Component> {
    fn from(layout: Layout) -> Self {
        layout.components.to_vec()
    }
}

/// The most components of a layout that is told: 8 dimensions, each with 6 levels of blocks.
#[cfg(feature = "serde")]
const MAX_COMPONENTS: usize = 64;

/// For an index space of as many dimensions as are named, at most [`crate::MAX_DIMS`].
#[cfg(feature = "serde")]
impl TryFrom<Vec<Component>> for Layout {
    type Error = ModelError;

    fn try_from(components: Vec<Component>) -> Result<Self, ModelError> {
        if components.len() > MAX_COMPONENTS {
            return Err(ModelError::Layout { why: "it has too many components".to_owned() });
        }
        let rank = components.iter().filter_map(|c| c.dim()).max().map_or(0, |dim| dim + 1);
        if rank > crate::MAX_DIMS {
            return Err(ModelError::Rank { dims: rank });
        }
        Layout::new(components, rank)
    }
}

/// The size of the block of dimension `of` at a level.
fn block_at(components: &[Component], of: usize, at: u8) -> Option<u64> {
    components.iter().find_map(|component| match *component {
        Component::Inner { dim, level, size } if usize::from(dim) == of && level == at => {
            Some(size)
        }
        _ => None,
    })
}

fn fault_of_dim(components: &[Component], dim: usize) -> Option<&'static str> {
    let (mut whole, mut outer, mut blocks, mut empty) = (0, 0, 0usize, false);
    for component in components.iter().filter(|c| c.dim() == Some(dim)) {
        match component {
            Component::Whole(_) => whole += 1,
            Component::Outer(_) => outer += 1,
            Component::Inner { size, .. } => (blocks, empty) = (blocks + 1, empty || *size == 0),
            Component::Fields => {}
        }
    }
    let has = |level: usize| {
        u8::try_from(level).is_ok_and(|level| block_at(components, dim, level).is_some())
    };
    match (whole, outer, blocks) {
        _ if empty => Some("has a block of size 0"),
        _ if !(1..=blocks).all(has) => Some("has block levels that repeat or leave a gap"),
        (1, 0, 0) => None,
        (0, 1, 1..) => None,
        (0, 0, 0) => Some("is missing"),
        (0, 0, _) => Some("has blocks but no outer part"),
        (0, 1, 0) => Some("has an outer part but no block"),
        _ => Some("stands in the layout more than once"),
    }
}

struct Named<'a> {
    layout: &'a Layout,
    space: &'a IndexSpace,
}

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |dim: u8| &*self.space.dims()[usize::from(dim)].name;
        f.write_str("<")?;
        for (i, component) in self.layout.components.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { ", " })?;
            match *component {
                Component::Fields => f.write_str("F")?,
                Component::Whole(dim) => f.write_str(name(dim))?,
                Component::Inner { dim, level: 1, size } => write!(f, "{}_in={size}", name(dim))?,
                Component::Inner { dim, level, size } => {
                    write!(f, "{}_in{level}={size}", name(dim))?;
                }
                Component::Outer(dim) => write!(f, "{}_out", name(dim))?,
            }
        }
        f.write_str(">")
    }
}
