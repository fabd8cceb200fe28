//! What an instance holds, and in which order: everything but where.

use crate::Error;
use model::{FieldSpace, IndexSpace, Layout};

/// An index space, a field space and a layout.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Array {
    /// The entries.
    pub space: IndexSpace,
    /// What is stored for each.
    pub fields: FieldSpace,
    /// In which order.
    pub layout: Layout,
}

impl Array {
    /// `fields` at each index of `space`, in the order of its dimensions (slowest first) with the
    /// fields innermost: NumPy's C order.
    #[must_use]
    pub fn new(space: IndexSpace, fields: FieldSpace) -> Self {
        let layout = Layout::row_major(space.rank());
        Array { space, fields, layout }
    }

    /// The array of `dims` (name and extent, slowest first) whose entries are of type `dtype`, as
    /// NumPy writes it.
    ///
    /// ```
    /// let image = isometry::Array::of(&[("h", 4), ("w", 6), ("c", 3)], "|u1")?;
    /// let planes = image.clone().laid_out("chw")?;
    /// assert_eq!(planes.layout.display(&planes.space).to_string(), "<F, w, h, c>");
    /// # Ok::<(), isometry::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Model`] for wrong dimensions, [`Error::Dtype`] for a type that is none.
    pub fn of(dims: &[(&str, u64)], dtype: &str) -> Result<Self, Error> {
        Ok(Array::new(IndexSpace::of(dims)?, files::dtype::parse(dtype)?))
    }

    /// The same array in another layout: `"<F, w, h, c>"`, fastest first, or `"chw"` or
    /// `"batch,row"`, slowest first with the fields innermost.
    ///
    /// # Errors
    /// [`Error::Parse`] where the text is no layout of the array's dimensions.
    pub fn laid_out(mut self, layout: &str) -> Result<Self, Error> {
        let wrong = |error| Error::Parse { text: layout.to_owned(), error };
        self.layout = layout::parse(layout, &self.space).map_err(wrong)?;
        Ok(self)
    }

    /// The bytes that it takes, padding included.
    ///
    /// # Errors
    /// [`Error::Model`] where that passes 63 bits.
    pub fn bytes(&self) -> Result<u64, Error> {
        Ok(files::array_bytes(&self.space, &self.fields, &self.layout)?)
    }
}
