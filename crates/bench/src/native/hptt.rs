//! HPTT, the High-Performance Tensor Transposition library, through its C interface. Each call
//! makes its plan anew: the interface has no other.

use super::library::Loaded;
use crate::Error;
use crate::peer::{Peer, Ready, Run, Task, View};
use std::ffi::c_int;

type Transpose<T> = unsafe extern "C" fn(
    *const c_int,
    c_int,
    T,
    *const T,
    *const c_int,
    *const c_int,
    T,
    *mut T,
    *const c_int,
    c_int,
    c_int,
);

/// The library: its transpositions of 4 and of 8 bytes.
#[derive(Clone, Copy)]
pub(crate) struct Hptt {
    single: Transpose<f32>,
    double: Transpose<f64>,
}

/// A tensor and the order of its dimensions, fastest first, in the destination.
#[derive(Debug, PartialEq, Eq)]
struct Tensor {
    item_bytes: u64,
    order: Vec<c_int>,
    sizes: Vec<c_int>,
    /// The sizes of what source and destination are cut out of.
    outer: [Vec<c_int>; 2],
    /// Where they start.
    src: usize,
    dst: usize,
}

impl Hptt {
    pub(crate) fn load() -> Result<Self, Error> {
        let library = Loaded::open("ISOMETRY_HPTT", &["libhptt.so"])?;
        // SAFETY: the types are those of hptt.h's C interface.
        let hptt = unsafe {
            Hptt {
                single: library.function("sTensorTranspose")?,
                double: library.function("dTensorTranspose")?,
            }
        };
        library.keep();
        Ok(hptt)
    }

    /// # Safety
    /// The bytes of both tensors are valid, and nobody else's.
    unsafe fn transpose(&self, tensor: &Tensor, threads: c_int) {
        let (order, rank) = (tensor.order.as_ptr(), tensor.order.len() as c_int);
        let (sizes, [from, to]) = (tensor.sizes.as_ptr(), &tensor.outer);
        let (from, to) = (from.as_ptr(), to.as_ptr());
        let (src, dst) = (tensor.src, tensor.dst);
        // SAFETY: the caller's contract; every array holds `rank` numbers.
        unsafe {
            if tensor.item_bytes == 4 {
                let (src, dst) = (src as *const f32, dst as *mut f32);
                (self.single)(order, rank, 1.0, src, sizes, from, 0.0, dst, to, threads, 0);
            } else {
                let (src, dst) = (src as *const f64, dst as *mut f64);
                (self.double)(order, rank, 1.0, src, sizes, from, 0.0, dst, to, threads, 0);
            }
        }
    }
}

impl Peer for Hptt {
    fn name(&self) -> &str {
        "hptt"
    }

    fn prepare<'a>(&mut self, task: &Task<'a>) -> Result<Option<Ready<'a>>, Error> {
        let bases = (task.spans.src.0, task.spans.dst.0);
        let tensors: Option<Vec<_>> = task.views.iter().map(|view| widest(view, bases)).collect();
        let Some(tensors) = tensors else { return Ok(None) };
        let (hptt, threads) = (*self, task.threads.cast_signed());
        let run: Run<'a> = Box::new(move || {
            for tensor in &tensors {
                // SAFETY: they are what the task's views move, which lies inside the buffers,
                // and these outlive the run.
                unsafe { hptt.transpose(tensor, threads) };
            }
            Ok(())
        });
        Ok(Some(run.into()))
    }
}

/// `view` as a tensor of the longest items that make it one; `None` where the library has none.
fn widest(view: &View, bases: (usize, usize)) -> Option<Tensor> {
    [8, 4].into_iter().find_map(|most| tensor(&view.in_aligned_items(most), bases))
}

/// `view` as a tensor of its items; `None` where it is none that the library has.
fn tensor(view: &View, bases: (usize, usize)) -> Option<Tensor> {
    if view.item_bytes < 4 || view.extents.is_empty() {
        return None;
    }
    let (from, src_outer) = nested(view, &view.src.strides)?;
    let (to, dst_outer) = nested(view, &view.dst.strides)?;
    let position =
        |k: &usize| from.iter().position(|f| f == k).and_then(|p| c_int::try_from(p).ok());
    let sizes = from.iter().map(|&k| c_int::try_from(view.extents[k]).ok());
    Some(Tensor {
        item_bytes: view.item_bytes,
        order: to.iter().map(position).collect::<Option<_>>()?,
        sizes: sizes.collect::<Option<_>>()?,
        outer: [src_outer, dst_outer],
        src: bases.0.wrapping_add_signed(view.src.offset as isize),
        dst: bases.1.wrapping_add_signed(view.dst.offset as isize),
    })
}

/// The dimensions, fastest first, and the sizes of the tensor that nests them so.
fn nested(view: &View, strides: &[i64]) -> Option<(Vec<usize>, Vec<c_int>)> {
    let mut order: Vec<usize> = (0..strides.len()).collect();
    order.sort_by_key(|&k| (strides[k], view.extents[k]));
    let mut outer = Vec::new();
    let mut step = view.item_bytes.cast_signed();
    for (i, &k) in order.iter().enumerate() {
        if strides[k] != step {
            return None;
        }
        let next = order.get(i + 1).map_or(step * view.extents[k].cast_signed(), |&n| strides[n]);
        if next % step != 0 || next / step < view.extents[k].cast_signed() {
            return None;
        }
        outer.push(c_int::try_from(next / step).ok()?);
        step = next;
    }
    Some((order, outer))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::Strides;

    fn view(extents: &[u64], src: &[i64], dst: &[i64]) -> View {
        let side = |strides: &[i64]| Strides { offset: 0, strides: strides.to_vec() };
        View { extents: extents.to_vec(), item_bytes: 4, src: side(src), dst: side(dst) }
    }

    #[test]
    fn a_permutation_is_a_tensor_and_may_be_cut_out_of_a_larger_one() {
        let found = tensor(&view(&[2, 3, 5], &[72, 24, 4], &[4, 40, 8]), (16, 32)).unwrap();
        let expected = Tensor {
            item_bytes: 4,
            order: vec![2, 0, 1],
            sizes: vec![5, 3, 2],
            outer: [vec![6, 3, 2], vec![2, 5, 3]],
            src: 16,
            dst: 32,
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn items_that_stay_together_are_as_long_as_the_library_has_them() {
        let pages = View { item_bytes: 2, ..view(&[2, 3, 8], &[48, 16, 2], &[16, 32, 2]) };
        let found = widest(&pages, (0, 0)).unwrap();
        assert_eq!((found.item_bytes, &found.sizes[..]), (8, &[2, 3, 2][..]));
        // As pairs of 4 bytes: neither side has a dense dimension of 8.
        let pairs = View { item_bytes: 2, ..view(&[2, 3, 4], &[48, 16, 2], &[16, 32, 2]) };
        let found = widest(&pairs, (0, 0)).unwrap();
        assert_eq!((found.item_bytes, &found.sizes[..]), (4, &[2, 3, 2][..]));
        assert_eq!(
            widest(&View { item_bytes: 2, ..view(&[3, 5], &[10, 2], &[2, 6]) }, (0, 0)),
            None
        );
    }

    #[test]
    fn what_has_no_dense_dimension_is_none() {
        assert_eq!(tensor(&view(&[3, 5], &[40, 8], &[4, 12]), (0, 0)), None);
        assert_eq!(tensor(&view(&[3, 5], &[16, 4], &[4, 12]), (0, 0)), None);
    }
}
