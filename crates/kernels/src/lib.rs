//! Moves canonical copies inside host memory.
//!
//! **Hazard.** A copy is a list of offsets from two addresses; nothing in it says how much memory
//! there is. **Guarantee.** [`copy`] reads and writes exactly the bytes that
//! [`layout::touched`] bounds and [`layout::oracle`] moves, and may write what a copy says is padding; whoever calls it
//! answers for these being there. What lies between the bytes of records may be read too; nothing is made of it.
//! [`copy_slices`] checks them. Neither allocates. **Structure.** `strategy` chooses
//! a way: `runs`, a `gather` of them, `panel`s of a transpose, `flat` for long rows that start on no
//! line, `record`s and arrays (by `window`s where vectors can), structures that lie `alike` on both sides, or `walk`
//! with its `plane`s and `element`s for what fits none; `nest` is the form in which it sees a copy, `caches` are those
//! of the machine. `tile`, `narrow` and `stream` are the bodies, generic over a `vector`, and `ahead` asks for
//! what they read next; `instance` has them for each instruction set.

mod ahead;
mod alike;
mod caches;
mod element;
mod ends;
mod flat;
mod gather;
mod instance;
mod narrow;
mod nest;
mod panel;
mod plane;
mod record;
mod runs;
mod shift;
mod split;
mod strategy;
mod stream;
mod tile;
mod vector;
mod walk;
mod window;

pub use split::{parts, split};

use alike::Alike;
use instance::{Instance, detect};
use layout::{FieldCopy, NdCopy, lies_in, touched};
use model::Crossover;
use record::LEAST_RECORDS;
use strategy::Strategy;
use thiserror::Error;
use vector::LINE_BYTES;

/// A copy that reaches outside a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the copy reaches outside its {side}")]
pub struct OutOfBounds {
    /// `source` or `destination`.
    pub side: &'static str,
}

/// Shorter runs are elements to whoever asks in which order a source is read.
const LEAST_RUN_BYTES: u64 = 32;

/// How a destination is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stores {
    /// Into the caches: it is small, or read at once.
    Cached,
    /// Past the caches, where that can be done by whole lines.
    Streamed,
}

impl Stores {
    /// What suits a destination that gets so many bytes in all, of which `list` is a part, and none of
    /// which is read at once.
    #[must_use]
    pub fn of(list: &[NdCopy], bytes: u64, crossover: Crossover) -> Self {
        let in_order = list.iter().all(is_in_order);
        let from = if in_order { crossover.in_order } else { crossover.turned };
        if bytes < from { Stores::Cached } else { Stores::Streamed }
    }
}

/// Whether the source is read about in the order in which it lies: by runs, by many records of less than
/// a line whose neighbours become neighbours, or by structures that lie so on both sides, and by no table. Longer
/// records are rows of a transpose: from about half as much on they are better written past the caches.
fn is_in_order(copy: &NdCopy) -> bool {
    let is_run = |field: &FieldCopy| field.bytes >= LEAST_RUN_BYTES || field.strides.is_empty();
    let are_records = |field: &FieldCopy| {
        let mut loops = copy.dims.iter().zip(&field.strides);
        let dense = loops.find(|(_, stride)| stride.dst.unsigned_abs() == field.bytes);
        dense.is_some_and(|(dim, stride)| {
            dim.extent >= LEAST_RECORDS as u64 && stride.src.unsigned_abs() < LINE_BYTES as u64
        })
    };
    copy.dims.iter().all(|dim| dim.src_index.is_none())
        && (copy.fields.iter().all(|field| is_run(field) || are_records(field))
            || Alike::of(copy, Stores::Streamed).is_some())
}

/// Moves what `copy` says from `src` to `dst`, the addresses of offset 0 on either side. Any
/// alignment will do. Other threads that are told of it see all of it.
///
/// # Safety
/// The bytes that `copy` touches (see [`layout::touched`]; every index table has as many entries
/// as its loop's extent) lie in one allocation around `src`, valid for reads, and in one around
/// `dst`, valid for writes. The bytes read and those written don't overlap, and nobody else
/// accesses them in a conflicting way during the call; padding counts as written. Of a structure's other bytes, between
/// those that are copied, it does not matter who writes them: they may be read, but nothing is made of them.
pub unsafe fn copy(copy: &NdCopy, src: *const u8, dst: *mut u8, stores: Stores) {
    // SAFETY: the caller keeps the contract, which is the same; the processor has what is detected.
    unsafe { copy_by(detect(), copy, (src, dst), stores) }
}

/// As [`copy`], with the instructions of `instance`.
///
/// # Safety
/// As [`copy`]; the processor has them.
unsafe fn copy_by(
    instance: &Instance,
    copy: &NdCopy,
    (src, dst): (*const u8, *mut u8),
    stores: Stores,
) {
    // The most frequent of small copies should not wait for a choice.
    if let ([], [run]) = (&copy.dims[..], &copy.fields[..]) {
        let src = src.wrapping_offset(run.src_offset as isize);
        let dst = dst.wrapping_offset(run.dst_offset as isize);
        // SAFETY: the caller keeps the contract, which is the same.
        return unsafe { strategy::run(instance, (src, dst), run.bytes as usize, stores) };
    }
    if copy.dims.iter().all(|d| d.extent > 0) && copy.fields.iter().any(|f| f.bytes > 0) {
        let strategy = Strategy::of(copy, dst.addr(), stores, instance.abilities);
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { strategy.run(instance, src, dst) }
    }
}

/// How [`copy`] would move `copy` to `dst`, with what instructions, what it takes the caches for, and why it goes
/// that way, in words.
#[must_use]
pub fn explain(copy: &NdCopy, dst: *const u8, stores: Stores) -> String {
    explain_by(detect(), copy, dst, stores)
}

/// As [`explain`], with the instructions of `instance`.
fn explain_by(instance: &Instance, copy: &NdCopy, dst: *const u8, stores: Stores) -> String {
    if copy.dims.iter().any(|d| d.extent == 0) {
        return "nothing".to_owned();
    }
    let Instance { name, abilities, .. } = instance;
    let strategy = Strategy::of(copy, dst.addr(), stores, *abilities);
    format!("{strategy} ({name}, {}): {}", abilities.caches, strategy.why())
}

/// As [`copy`], between slices: offset 0 lies at `src_base` and `dst_base`. A byte that is written twice
/// ends as one of those that go there.
///
/// # Errors
/// [`OutOfBounds`] where the copy reaches outside a slice, or isn't well-formed
/// ([`NdCopy::is_well_formed`]); nothing is written then.
pub fn copy_slices(
    list: &NdCopy,
    src: &[u8],
    src_base: usize,
    dst: &mut [u8],
    dst_base: usize,
) -> Result<(), OutOfBounds> {
    if list.dims.iter().any(|d| d.extent == 0) {
        return Ok(());
    }
    check_bounds(list, (src_base, src.len()), (dst_base, dst.len()))?;
    let (src, dst) = (src.as_ptr().wrapping_add(src_base), dst.as_mut_ptr().wrapping_add(dst_base));
    let one = std::slice::from_ref(list);
    let stores = Stores::of(one, list.payload_bytes(), Crossover::default());
    // SAFETY: every byte that the copy touches lies in the slices, which is checked above; a
    // shared and an exclusive slice don't overlap.
    unsafe { copy(list, src, dst, stores) };
    Ok(())
}

/// Whether `list` stays within memory of so many bytes on either side, where offset 0 lies at a base.
///
/// # Errors
/// [`OutOfBounds`] as for [`copy_slices`].
pub fn check_bounds(
    list: &NdCopy,
    (src_base, src_bytes): (usize, usize),
    (dst_base, dst_bytes): (usize, usize),
) -> Result<(), OutOfBounds> {
    if !list.is_well_formed() {
        return Err(OutOfBounds { side: "source" });
    }
    let (read, written) = touched(list);
    if !lies_in(&read, src_base as u64, src_bytes as u64) {
        return Err(OutOfBounds { side: "source" });
    }
    match lies_in(&written, dst_base as u64, dst_bytes as u64) {
        true => Ok(()),
        false => Err(OutOfBounds { side: "destination" }),
    }
}

#[cfg(test)]
mod tests;
