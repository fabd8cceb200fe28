//! Copies between pages beside which there is no memory.

use super::alike::alike;
use super::padded::{let_be, one_row, put_together};
use super::rows::in_rows;
use super::*;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

/// Memory that ends, or starts, where there is none.
struct Guarded {
    start: *mut u8,
    bytes: usize,
}

const PAGE: usize = 4096;

impl Guarded {
    fn new(bytes: usize) -> Self {
        let all = bytes.next_multiple_of(PAGE) + 2 * PAGE;
        let flags = (ProtFlags::empty(), MapFlags::PRIVATE);
        // SAFETY: a new mapping, of which the inner pages become accessible.
        let start = unsafe {
            let start = mmap_anonymous(std::ptr::null_mut(), all, flags.0, flags.1).unwrap();
            let inner = start.cast::<u8>().add(PAGE);
            mprotect(inner.cast(), all - 2 * PAGE, MprotectFlags::READ | MprotectFlags::WRITE)
                .unwrap();
            inner
        };
        Guarded { start, bytes: all - 2 * PAGE }
    }

    /// `len` bytes right in front of the page behind, or right behind the page in front.
    fn at(&self, len: usize, last: bool) -> *mut u8 {
        self.start.wrapping_add(if last { self.bytes - len } else { 0 })
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: the mapping is this type's own.
        unsafe { munmap(self.start.wrapping_sub(PAGE).cast(), self.bytes + 2 * PAGE).unwrap() };
    }
}

/// Copies from the first byte of the source to the first of the destination.
fn from_the_first() -> Vec<NdCopy> {
    let mut list = vec![run(5003)];
    for bytes in [1, 2, 3, 4, 8, 12, 16, 32, 100, 128] {
        for extents in [
            vec![67, 131],
            vec![40, 64],
            vec![3, 500],
            vec![500, 3],
            vec![7, 9, 40],
            vec![33, 4, 6],
            // Rows that are whole lines together only, of as few squares as may be.
            vec![9, 21],
            vec![17, 37],
            // Records that are put together by squares.
            vec![300, 9],
            vec![300, 37],
            // Short rows to long ones that start anywhere.
            vec![1031, 4],
            vec![1031, 8],
            vec![1031, 17],
        ] {
            let order: Vec<usize> = (0..extents.len()).collect();
            let dst_order = order.iter().copied().rev().collect();
            let gaps = (0, 0);
            list.push(Shape { bytes, extents, src_order: order, dst_order, gaps }.copy());
        }
        // Rows that don't follow each other, of which the last square overlaps the one before it.
        let (src_order, dst_order, gaps) = (vec![0, 1], vec![1, 0], (1, 0));
        list.push(Shape { bytes, extents: vec![60, 64], src_order, dst_order, gaps }.copy());
        for extents in [vec![37, 4, 4], vec![37, 8, 12]] {
            let (src_order, dst_order, gaps) = (vec![0, 1, 2], vec![0, 2, 1], (0, 0));
            list.push(Shape { bytes, extents, src_order, dst_order, gaps }.copy());
        }
        // Hybrids, by windows and by squares.
        for extents in [vec![3, 4, 300], vec![12, 8, 300], vec![5, 16, 300], vec![17, 17, 57]] {
            let (src_order, dst_order, gaps) = (vec![0, 1, 2], vec![1, 0, 2], (0, 0));
            list.push(Shape { bytes, extents, src_order, dst_order, gaps }.copy());
        }
        for back in [false, true] {
            list.push(structures(&[bytes; 5], 300, back));
            list.push(structures(&[bytes, 1, 8], 300, back));
            list.push(structures(&[bytes; 3], 259, back));
            list.push(structures(&[bytes; 7], 259, back));
        }
    }
    for sizes in [&[4, 8][..], &[8, 4, 4], &[1, 4, 1], &[1, 2, 4, 8], &[1, 8, 2, 4], &[12, 8, 4]] {
        list.push(one_row(put_together(sizes, (1, 300), 0, false)));
        list.push(alike(one_row(put_together(sizes, (1, 301), 0, false)), 0));
        list.push(put_together(sizes, (3, 259), 0, false));
        list.push(put_together(sizes, (70, 4), 0, true));
    }
    // Rows of structures, and hybrids.
    for sizes in [&[4, 8][..], &[1, 2, 4]] {
        for hybrid in [None, Some(4), Some(16)] {
            let rows = |back| in_rows(sizes, (3, 259), hybrid, back);
            list.extend([false, true].map(rows));
        }
    }
    // What lies between structures is read with them, but not what is behind the last; nor is it written.
    for (sizes, padding) in [(&[1, 2, 4][..], 3), (&[4, 8], 4), (&[1, 8], 7)] {
        list.extend([false, true].map(|back| padded_structures(sizes, 300, (padding, 1), back)));
    }
    // Nor are fields that are left out.
    for (sizes, left_out) in [(&[8, 4, 4][..], 0), (&[1, 2, 4, 8], 2), (&[4, 8, 4], 2)] {
        let mut copy = padded_structures(sizes, 300, (3, 1), true);
        copy.fields.remove(left_out);
        list.push(copy);
    }
    list
}

#[test]
#[cfg_attr(miri, ignore = "Miri maps no pages without access")]
fn nothing_is_touched_beside_source_and_destination() {
    for copy in from_the_first() {
        let (read, written) = touched(&copy);
        let [from_bytes, bytes] = [read, written].map(|range| range.end as usize);
        let (src, dst) = (Guarded::new(from_bytes), Guarded::new(bytes));
        for (instance, (at_src, at_dst)) in each_instance() {
            let (from, to) = (src.at(from_bytes, at_src), dst.at(bytes, at_dst));
            for stores in STORES {
                let mut expected = vec![0; bytes];
                // SAFETY: both are inside their mappings, which nothing else uses.
                unsafe {
                    let from = std::slice::from_raw_parts_mut(from, from_bytes);
                    from.copy_from_slice(&source(from_bytes));
                    oracle::copy(&copy, from, 0, &mut expected, 0);
                    to.write_bytes(0, bytes);
                    copy_by(&instance, &copy, (from.as_ptr(), to), stores);
                    let moved = std::slice::from_raw_parts(to, bytes);
                    let_be(&copy, moved, (&mut expected, 0));
                    assert!(moved == expected, "{copy:?}");
                }
            }
        }
    }
}

/// Every instance, with source and destination at either end of their pages.
fn each_instance() -> impl Iterator<Item = (Instance, (bool, bool))> {
    let ends = [(false, false), (false, true), (true, false), (true, true)];
    each_ability().flat_map(move |instance| ends.map(|ends| (instance, ends)))
}
