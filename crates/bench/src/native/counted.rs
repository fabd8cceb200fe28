//! One run of the kernels, for a tool that counts what it executes.

use super::moves::is_inside;
use crate::Error;
use crate::peer::Spans;
use channel::{Provider, Region};
use channel_host::{HostProvider, Pages};
use kernels::Stores;
use layout::NdCopy;
use model::{Crossover, MemoryId, NodeId};

/// Where buffers start: so far apart that it is the same in every run.
const ALIGN_BYTES: u64 = 2 << 20;

/// Runs `list` once, between new buffers of so many bytes that nobody has touched.
///
/// # Errors
/// Where it reaches outside the buffers, or there is no memory for them.
pub(crate) fn counted(list: &[NdCopy], [src, dst]: [u64; 2]) -> Result<(), Error> {
    let provider = HostProvider::new(MemoryId { node: NodeId(0), index: 0 }, Pages::default());
    let region = |bytes| {
        let region = provider.allocate(bytes, ALIGN_BYTES);
        region.map_err(Error::part("allocating the buffers of a case"))
    };
    let (src, dst) = (region(src)?, region(dst)?);
    let spans = Spans { src: span(&src), dst: span(&dst) };
    if !list.iter().all(|copy| is_inside(copy, &spans)) {
        return Err(Error::part("preparing a copy")("it reaches outside its buffers"));
    }
    // No machine's own crossover: what is counted is to be the same everywhere.
    let bytes = list.iter().map(NdCopy::payload_bytes).sum();
    let stores = Stores::of(list, bytes, Crossover::default());
    // SAFETY: every byte lies inside the buffers, which nobody else has; offset 0 is the first
    // byte on either side.
    unsafe {
        isometry_counted(list, (spans.src.0 as *const u8, spans.dst.0 as *mut u8), stores);
    }
    Ok(())
}

fn span(region: &Region) -> (usize, usize) {
    region.host_span().map_or((0, 0), |s| (s.start().as_ptr() as usize, s.len_bytes()))
}

/// What is counted: a tool knows it by its name.
///
/// # Safety
/// As [`kernels::copy`], for each of `list`.
#[inline(never)]
unsafe fn isometry_counted(list: &[NdCopy], (src, dst): (*const u8, *mut u8), stores: Stores) {
    for copy in list {
        // SAFETY: the caller's contract.
        unsafe { kernels::copy(copy, src, dst, stores) };
    }
}
