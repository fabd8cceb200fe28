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
use std::sync::Arc;

/// The most runs that a network is given at once.
const RUNS: usize = 256;

/// What keeps memory valid.
pub type Owner = Arc<dyn Any + Send + Sync>;

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
    /// has left; keeps `owner` so long. `None` where there are no windows.
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
    ) -> Option<Result<Window, Error>> {
        let windows = self.conduit().windows()?;
        // SAFETY: as the caller says.
        Some(unsafe { windows.open((start, bytes), owner) })
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
            let runs =
                Runs::of(copy, 0).flat_map(|runs| runs_of(&runs, start.wrapping_add(base), at));
            for some in runs.collect::<Vec<_>>().chunks(RUNS) {
                // SAFETY: they are parts of what the caller speaks of, as was checked.
                unsafe { windows.put_to_window(to, window, some)? };
            }
        }
        Ok(Handle::over(self))
    }
}

/// Runs where offset 0 is address `here` on this side, and byte `at` of a window on the other.
fn runs_of(runs: &Runs, here: u64, at: u64) -> Vec<WindowRun> {
    let bytes = runs.bytes();
    let run = |from: Stride| {
        let (start, at) = (here.wrapping_add_signed(from.src), at.wrapping_add_signed(from.dst));
        WindowRun { start, bytes, at }
    };
    runs.starts().map(run).collect()
}
