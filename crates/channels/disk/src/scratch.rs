//! Page-aligned buffers for bytes that can't go directly between file and memory.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

const PAGE_BYTES: usize = 4096;

/// A buffer that one operation owns.
#[derive(Debug)]
pub(crate) struct Scratch {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the buffer belongs to this value alone, as a `Box<[u8]>` would.
unsafe impl Send for Scratch {}

impl Scratch {
    /// A buffer of at least `bytes`, of no particular content.
    fn new(bytes: usize) -> Self {
        let bytes = bytes.next_power_of_two().max(PAGE_BYTES);
        let layout = Layout::from_size_align(bytes, PAGE_BYTES).expect("a span's size is small");
        // SAFETY: the layout's size is at least a page.
        let start = unsafe { alloc(layout) };
        let start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout));
        Scratch { start, layout }
    }

    /// Makes all of it 0.
    pub(crate) fn clear(&self) {
        // SAFETY: the buffer is this value's, and as long as its layout; no operation uses it yet.
        unsafe { self.start.write_bytes(0, self.layout.size()) };
    }

    /// The address of its first byte.
    pub(crate) fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // SAFETY: `alloc` gave the buffer for this layout, and the operation that used it ended.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// Buffers to use again; never more than operations were in flight at once.
#[derive(Debug, Default)]
pub(crate) struct ScratchPool {
    free: Vec<Scratch>,
}

impl ScratchPool {
    /// A buffer of at least `bytes`.
    pub(crate) fn take(&mut self, bytes: u64) -> Scratch {
        let bytes = usize::try_from(bytes).expect("a span's size is small");
        let fits = self.free.iter().position(|s| s.layout.size() >= bytes);
        match fits.or_else(|| self.free.len().checked_sub(1)) {
            Some(index) => {
                let scratch = self.free.swap_remove(index);
                if scratch.layout.size() >= bytes { scratch } else { Scratch::new(bytes) }
            }
            None => Scratch::new(bytes),
        }
    }

    /// Takes a buffer back.
    pub(crate) fn give(&mut self, scratch: Scratch) {
        self.free.push(scratch);
    }
}
