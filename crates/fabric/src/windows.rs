//! Memory of accelerators that peers put to where it is, over networks that reach it there.
//!
//! **Hazard.** A peer names memory that it was not given; a device frees what a network still reads or
//! writes. **Guarantee.** A put goes inside a [`Window`], which its owner keeps until it has left, and is
//! over when it returns. **Structure.** Who has memory opens a window on it, and tells others of that by
//! whatever means; these put out of memory of devices of their own. It holds for CUDA's, whose memory has
//! addresses that networks know.

use crate::error::Error;
use crate::fabric::Fabric;
use crate::handle::Handle;
use crate::pieces::Runs;
use model::{NdCopy, NodeId, Stride};
use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// The most runs that a network is given at once.
const RUNS: usize = 256;

/// What keeps memory valid.
pub type Owner = Arc<dyn Any + Send + Sync>;

/// What makes a thread ready for memory of a device: networks that know that may count on it that the device's
/// context is the thread's own.
pub struct Begin(Box<dyn FnOnce() + Send>);

impl Begin {
    /// One that calls `begin`.
    pub fn new(begin: impl FnOnce() + Send + 'static) -> Begin {
        Begin(Box::new(begin))
    }

    /// Makes this thread ready.
    pub(crate) fn call(self) {
        (self.0)();
    }
}

impl fmt::Debug for Begin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Begin").finish_non_exhaustive()
    }
}

/// Memory of a device that its rank lets others put to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// Its address, as its rank sees it.
    pub start: u64,
    /// How many bytes it has.
    pub bytes: u64,
    /// By which the network knows it.
    pub key: Vec<u8>,
}

/// Bytes of a device's memory that lie together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowRun {
    /// Where they are.
    pub start: u64,
    /// How many.
    pub bytes: u64,
    /// From which byte of a window on they go.
    pub at: u64,
}

impl Fabric {
    /// Whether windows can be opened: the network reaches memory of CUDA's devices.
    #[must_use]
    pub fn has_windows(&self) -> bool {
        self.conduit().windows().is_some()
    }

    /// Lets all peers put to memory of a device, the `bytes` bytes from address `start` on, until this rank
    /// has left; keeps `owner` so long, and calls `begin` before, on the thread that the network does all this
    /// by. `None` where there are no windows.
    ///
    /// # Safety
    ///
    /// They are memory of a device of CUDA's that this process has allocated, and valid while `owner` lives.
    ///
    /// # Errors
    /// [`Error::Io`] where the network doesn't take them.
    pub unsafe fn open_window(
        &self,
        (start, bytes): (u64, u64),
        owner: Owner,
        begin: Begin,
    ) -> Option<Result<Window, Error>> {
        let windows = self.conduit().windows()?;
        // SAFETY: as the caller says.
        Some(unsafe { windows.open((start, bytes), owner, begin) })
    }

    /// Makes `copies` from memory of a device, the so many bytes from an address on, where offset 0 is byte
    /// `base`, to a window of `to`, where it is byte `at`. They are there when it returns. Each run of bytes
    /// is put by itself.
    ///
    /// # Safety
    ///
    /// The memory is that of a device of CUDA's that this process has allocated. What is copied is valid, and
    /// nobody writes it, until this returns.
    ///
    /// # Errors
    /// As [`Fabric::put_copies`]; [`Error::Io`] where the network doesn't take them. Copies before the one that
    /// reaches outside have been made.
    pub unsafe fn put_to_window(
        &self,
        (to, window, at): (NodeId, &Window, u64),
        copies: &[NdCopy],
        (start, bytes, base): (u64, u64, u64),
    ) -> Result<Handle<'_>, Error> {
        self.outside("reach memory that is not mapped")?;
        self.check(to, 0, 0)?;
        let windows = self.conduit().windows().ok_or_else(|| self.beyond(to, at, 0))?;
        for copy in copies.iter().filter(|copy| copy.payload_bytes() > 0) {
            let sizes = [base, bytes, at, window.bytes].map(|size| size as usize);
            let checked = kernels::check_bounds(copy, (sizes[0], sizes[1]), (sizes[2], sizes[3]));
            checked.map_err(|outside| match outside.side {
                "source" => Error::OutOfBuffer { bytes: sizes[1] },
                _ => Error::OutOfBounds {
                    peer: to,
                    at,
                    bytes: copy.payload_bytes(),
                    of: window.bytes,
                },
            })?;
            // SAFETY: they are parts of what the caller speaks of, as was checked.
            let put = |runs: &[WindowRun]| unsafe { windows.put_to_window(to, window, runs) };
            each_batch(copy, (start.wrapping_add(base), at), put)?;
        }
        Ok(Handle::over(self))
    }
}

/// Has `put` take the runs of a copy, of which there may be more than fit in memory, some at a time and none
/// after one that it refuses. Offset 0 is address `here` on this side, and byte `at` of a window on the other.
fn each_batch<E>(
    copy: &NdCopy,
    (here, at): (u64, u64),
    mut put: impl FnMut(&[WindowRun]) -> Result<(), E>,
) -> Result<(), E> {
    let mut batch = Vec::new();
    for runs in Runs::of(copy, 0) {
        let bytes = runs.bytes();
        for Stride { src, dst } in runs.starts() {
            let (start, at) = (here.wrapping_add_signed(src), at.wrapping_add_signed(dst));
            batch.push(WindowRun { start, bytes, at });
            if batch.len() == RUNS {
                put(&batch)?;
                batch.clear();
            }
        }
    }
    if batch.is_empty() { Ok(()) } else { put(&batch) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{CopyDim, FieldCopy};

    /// Two fields of a byte and of two, of so many entries that lie apart here and there.
    fn copy(extent: u64) -> NdCopy {
        let field = |bytes, offset| FieldCopy {
            bytes,
            src_offset: offset,
            dst_offset: 100 + offset,
            padding: 0,
            strides: vec![Stride { src: 8, dst: -4 }],
        };
        let dims = vec![CopyDim { extent, src_index: None, dst_index: None }];
        NdCopy { dims, fields: vec![field(1, 0), field(2, 1)] }
    }

    #[test]
    fn runs_of_all_fields_go_together_and_no_more_than_some_at_once() {
        for extent in [1, 10, RUNS as u64 / 2, RUNS as u64] {
            let mut put = Vec::new();
            let taken: Result<(), ()> = each_batch(&copy(extent), (1 << 40, 1 << 20), |runs| {
                put.push(runs.to_vec());
                Ok(())
            });
            assert_eq!((taken, put.len() as u64), (Ok(()), (2 * extent).div_ceil(RUNS as u64)));
            assert!(put.iter().all(|runs| (1..=RUNS).contains(&runs.len())));
            let all = put.concat();
            assert_eq!(all[0], WindowRun { start: 1 << 40, bytes: 1, at: (1 << 20) + 100 });
            let last = WindowRun {
                start: (1 << 40) + 8 * (extent - 1) + 1,
                bytes: 2,
                at: (1 << 20) + 101 - 4 * (extent - 1),
            };
            assert_eq!((all.len() as u64, all.last()), (2 * extent, Some(&last)));
        }
    }

    #[test]
    fn what_is_refused_is_not_gone_on_with() {
        let mut left = 3;
        let refused = each_batch(&copy(1 << 50), (0, 0), |_| {
            left -= 1;
            if left > 0 { Ok(()) } else { Err("refused") }
        });
        assert_eq!((refused, left), (Err("refused"), 0));
    }
}
