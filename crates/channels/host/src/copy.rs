//! One piece of work, checked and carried out by the thread that has it.

use channel::model::{ChannelError, ChannelErrorKind, CopyWork};
use channel::{HostSpan, Region, check_bounds};
use kernels::Stores;

/// The bases of a copy whose bounds have been checked, and how its destination is written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bases {
    src: *const u8,
    dst: *mut u8,
    stores: Stores,
}

// SAFETY: the bases are addresses; whoever copies through them answers for the memory.
unsafe impl Send for Bases {}
// SAFETY: as for `Send`.
unsafe impl Sync for Bases {}

/// Copies `work` on the calling thread, which costs less than waking another one; small results are
/// best written into the caches. The bytes are visible to the caller when it returns.
///
/// # Errors
/// [`ChannelErrorKind::OutOfBounds`] where the work reaches outside a region, and
/// [`ChannelErrorKind::UnknownRegion`] where a region is not host memory; nothing is touched then.
pub fn run_here(
    work: &CopyWork,
    (src, dst): (&Region, &Region),
    stores: Stores,
) -> Result<(), ChannelError> {
    let bases = check(work, (src, dst), stores)?;
    for copy in work.list.iter() {
        // SAFETY: `check` found every byte of the work inside both regions, which the caller
        // lends for the length of this call.
        unsafe { run(copy, bases) };
    }
    Ok(())
}

/// Finds the bases of `work`, every byte of which lies inside `src` and `dst`.
pub(crate) fn check(
    work: &CopyWork,
    (src, dst): (&Region, &Region),
    stores: Stores,
) -> Result<Bases, ChannelError> {
    let spans = (span(src)?, span(dst)?);
    check_bounds(work, src.len_bytes(), dst.len_bytes())?;
    // A base alone may lie outside its region, where all offsets are negative, say.
    Ok(Bases {
        src: at(spans.0, work.src.offset).cast_const(),
        dst: at(spans.1, work.dst.offset),
        stores,
    })
}

/// Carries out one copy.
///
/// # Safety
/// `copy` belongs to work that [`check`] gave `bases` for, and the regions live until this
/// returns.
pub(crate) unsafe fn run(copy: &channel::layout::NdCopy, bases: Bases) {
    // SAFETY: the caller's promise is what the kernel asks for.
    unsafe { kernels::copy(copy, bases.src, bases.dst, bases.stores) };
}

fn at(span: HostSpan, offset: u64) -> *mut u8 {
    #[expect(clippy::cast_possible_truncation, reason = "addresses have 64 bits here")]
    span.start().as_ptr().wrapping_add(offset as usize)
}

fn span(region: &Region) -> Result<HostSpan, ChannelError> {
    let detail = || format!("a host copy of {region:?}, which is not host memory");
    region.host_span().ok_or_else(|| ChannelError::new(ChannelErrorKind::UnknownRegion, detail()))
}
