//! MKL's out-of-place transposition of matrices, through its C interface.

use super::library::Loaded;
use crate::Error;
use crate::peer::{Peer, Ready, Run, Task, View};
use std::ffi::{c_char, c_int};

type Omatcopy<T> =
    unsafe extern "C" fn(c_char, c_char, usize, usize, T, *const T, usize, *mut T, usize);

/// `MKL_Complex16`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Complex([f64; 2]);

/// The most matrices of a task: each is a call.
const MOST_MATRICES: u64 = 1 << 16;

/// The library: its transpositions of 4, 8 and 16 bytes.
#[derive(Clone, Copy)]
pub(crate) struct Mkl {
    single: Omatcopy<f32>,
    double: Omatcopy<f64>,
    complex: Omatcopy<Complex>,
    set_threads: unsafe extern "C" fn(c_int),
    version: unsafe extern "C" fn(*mut c_char, c_int),
}

/// A matrix to transpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Matrix {
    item_bytes: u64,
    rows: usize,
    columns: usize,
    /// How many items apart the rows of source and destination lie.
    lead: [usize; 2],
    /// Where they start.
    src: usize,
    dst: usize,
}

impl Mkl {
    pub(crate) fn load() -> Result<Self, Error> {
        let library = Loaded::open("ISOMETRY_MKL", &["libmkl_rt.so.3", "libmkl_rt.so.2"])?;
        // SAFETY: the types are those of mkl_trans.h and mkl_service.h, with integers of 32 bits.
        let mkl = unsafe {
            Mkl {
                single: library.function("MKL_Somatcopy")?,
                double: library.function("MKL_Domatcopy")?,
                complex: library.function("MKL_Zomatcopy")?,
                set_threads: library.function("MKL_Set_Num_Threads")?,
                version: library.function("MKL_Get_Version_String")?,
            }
        };
        library.keep();
        Ok(mkl)
    }

    /// # Safety
    /// The bytes of both matrices are valid, and nobody else's.
    unsafe fn transpose(&self, matrix: &Matrix) {
        let Matrix { rows, columns, lead: [from, to], src, dst, .. } = *matrix;
        let (order, how) = (b'R'.cast_signed(), b'T'.cast_signed());
        // SAFETY: the caller's contract; the types have the items' size.
        unsafe {
            match matrix.item_bytes {
                4 => (self.single)(order, how, rows, columns, 1.0, src as _, from, dst as _, to),
                8 => (self.double)(order, how, rows, columns, 1.0, src as _, from, dst as _, to),
                _ => {
                    let one = Complex([1.0, 0.0]);
                    (self.complex)(order, how, rows, columns, one, src as _, from, dst as _, to);
                }
            }
        }
    }
}

impl Peer for Mkl {
    fn name(&self) -> &str {
        "mkl"
    }

    /// What stands behind the word in what it says of itself.
    fn version(&self) -> Option<String> {
        let mut text = [0u8; 198];
        // SAFETY: so many bytes may be written.
        unsafe { (self.version)(text.as_mut_ptr().cast(), 198) };
        let text = String::from_utf8_lossy(&text);
        let (_, version) = text.split_once("Version ")?;
        version.split(['-', ' ', '\0']).next().map(str::to_owned)
    }

    fn prepare<'a>(&mut self, task: &Task<'a>) -> Result<Option<Ready<'a>>, Error> {
        let mut all = Vec::new();
        for view in task.views {
            let bases = (task.spans.src.0, task.spans.dst.0);
            let Some(matrices) = matrices(view, bases) else { return Ok(None) };
            all.extend(matrices);
        }
        // SAFETY: a setting of the library, for what it is called for from now on.
        unsafe { (self.set_threads)(task.threads.cast_signed()) };
        let mkl = *self;
        let run: Run<'a> = Box::new(move || {
            for matrix in &all {
                // SAFETY: they are what the task's views move, which lies inside the buffers,
                // and these outlive the run.
                unsafe { mkl.transpose(matrix) };
            }
            Ok(())
        });
        Ok(Some(run.into()))
    }
}

/// The matrices that `view` transposes; `None` where it is no transposition that the library has.
fn matrices(view: &View, bases: (usize, usize)) -> Option<Vec<Matrix>> {
    let view = view.in_aligned_items(16);
    let item = view.item_bytes.cast_signed();
    let dense = |strides: &[i64]| strides.iter().position(|&s| s == item);
    let (column, row) = (dense(&view.src.strides)?, dense(&view.dst.strides)?);
    if column == row || item < 4 || view.extents.iter().product::<u64>() == 0 {
        return None;
    }
    let (rows, columns) = (view.extents[row], view.extents[column]);
    let lead = [view.src.strides[row] / item, view.dst.strides[column] / item];
    let fits = |lead: i64, least: u64| u64::try_from(lead).ok().filter(|&lead| lead >= least);
    let lead = [fits(lead[0], columns)? as usize, fits(lead[1], rows)? as usize];
    let others: Vec<usize> = (0..view.extents.len()).filter(|&k| k != row && k != column).collect();
    let count: u64 = others.iter().map(|&k| view.extents[k]).product();
    let one = |index: u64| {
        let (mut rest, mut src, mut dst) = (index, view.src.offset, view.dst.offset);
        for &k in others.iter().rev() {
            let at = (rest % view.extents[k]).cast_signed();
            rest /= view.extents[k];
            src += at * view.src.strides[k];
            dst += at * view.dst.strides[k];
        }
        Matrix {
            item_bytes: view.item_bytes,
            rows: rows as usize,
            columns: columns as usize,
            lead,
            src: bases.0.wrapping_add_signed(src as isize),
            dst: bases.1.wrapping_add_signed(dst as isize),
        }
    };
    (count <= MOST_MATRICES).then(|| (0..count).map(one).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::Strides;

    fn view(extents: &[u64], src: &[i64], dst: &[i64]) -> View {
        let side = |strides: &[i64]| Strides { offset: 8, strides: strides.to_vec() };
        View { extents: extents.to_vec(), item_bytes: 4, src: side(src), dst: side(dst) }
    }

    #[test]
    fn a_transposition_is_a_matrix_for_each_turn_of_the_other_loops() {
        let all = matrices(&view(&[2, 3, 5], &[60, 20, 4], &[60, 4, 12]), (1000, 2000)).unwrap();
        let expected =
            Matrix { item_bytes: 4, rows: 3, columns: 5, lead: [5, 3], src: 1008, dst: 2008 };
        assert_eq!(all, [expected, Matrix { src: 1068, dst: 2068, ..expected }]);
    }

    #[test]
    fn what_keeps_its_fastest_dimension_or_has_none_is_no_matrix() {
        let none = |src: &[i64], dst: &[i64]| matrices(&view(&[3, 5], src, dst), (0, 0)).is_none();
        assert!(none(&[20, 4], &[40, 4]));
        assert!(none(&[40, 8], &[4, 12]));
        assert!(!none(&[20, 4], &[4, 12]));
    }
}
