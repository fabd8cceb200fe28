//! The bodies, once for each instruction set, and the one that this processor has.

use crate::Stores;
use crate::alike::{self, Mask};
use crate::caches::Caches;
use crate::flat::short::Short;
use crate::flat::{self, Panel, Stage, Strip};
use crate::gather::{self, Gather};
use crate::narrow;
use crate::record::windowed::Windowed;
use crate::record::{self, Block, Records, Rows, block};
use crate::runs::{self, Runs};
use crate::stream;
use crate::tile::{self, Lanes, Tile};
use crate::vector::scalar::Scalar;
use crate::vector::{Abilities, Vector};
use std::sync::LazyLock;

/// Moves a tile.
pub(crate) type Transpose = unsafe fn(&Tile, *const u8, *mut u8);

/// Moves a part of rows, around which so much of each lies.
pub(crate) type RowsAt = unsafe fn((&Tile, (usize, usize)), *const u8, *mut u8);

/// Moves a panel of long rows, of whose columns lines are carried.
pub(crate) type Through = unsafe fn(&Panel<'_>, (*const u8, *mut u8, *mut u8));
/// As [`flat::short::short`].
pub(crate) type ShortRows = unsafe fn(Short<'_>, (*const u8, *mut u8, *mut u8));

/// Writes out so many rows of so many bytes, so far apart, and asks for what is next.
pub(crate) type Splice = unsafe fn((usize, usize, usize), Option<*const u8>, *mut u8, *mut u8);

/// Moves a block of records.
pub(crate) type Blocks = unsafe fn(&Records<'_>, Block, (&Rows, &mut record::Stage<'_>));

/// Likewise, by windows.
pub(crate) type Windows = unsafe fn(&Records<'_>, Block, (&Rows, &Windowed));

/// Puts a strip of a panel together.
pub(crate) type Squares = unsafe fn(&Panel<'_>, Strip, (Option<*const u8>, &mut Stage));

/// The bodies for one instruction set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Instance {
    /// What the instruction set is called.
    pub(crate) name: &'static str,
    /// What a choice depends on.
    pub(crate) abilities: Abilities,
    /// The bodies of `tile` and `narrow`, by [`Lanes`], for elements of 1, 2, 4, 8 and 16 bytes.
    transposes: [[Transpose; 5]; 12],
    /// [`flat::strips::copy_in`].
    pub(crate) copy_in: unsafe fn(&Panel<'_>, *const u8, &mut Stage),
    /// [`flat::strips::squares`], for elements of 1, 2, 4, 8 and 16 bytes.
    squares: [Squares; 5],
    /// [`flat::strips::flush`].
    pub(crate) flush: unsafe fn(&Panel<'_>, Strip, (*const u8, &mut Stage, *mut u8)),
    /// [`record::block::run`], and by squares.
    records: [Blocks; block::BODIES],
    /// [`record::block::windows`], and those of a lane each.
    windows: [Windows; 2],
    /// [`gather::runs`].
    pub(crate) gather: unsafe fn(&Gather<'_>, *const u8, *mut u8),
    pub(crate) whole: Whole,
    pub(crate) joined: Joined,
    /// [`runs::runs`].
    pub(crate) runs: unsafe fn(&Runs, *const u8, *mut u8),
}

/// The bodies for what lies alike on both sides.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Whole {
    /// [`stream::run`].
    pub(crate) stream: unsafe fn(*const u8, *mut u8, (usize, bool)),
    /// [`alike::row`].
    pub(crate) alike: unsafe fn((*const u8, *mut u8), (&Mask, usize, Stores)),
}

/// The bodies for rows that are whole lines only together, and for long rows that go through registers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Joined {
    /// [`stream::splice`].
    pub(crate) splice: Splice,
    /// [`tile::rows::rows`], for elements of 1, 2, 4, 8 and 16 bytes.
    rows: [RowsAt; 5],
    /// [`flat::through::through`], for elements of 1, 2, 4, 8 and 16 bytes.
    through: [Through; 5],
    /// [`flat::short::short`], likewise.
    short: [ShortRows; 5],
}

impl Joined {
    /// The body for long rows, and elements of `bytes`, a power of two up to 16.
    pub(crate) fn through(&self, bytes: usize) -> Through {
        self.through[bytes.ilog2() as usize]
    }

    /// As [`Joined::through`], where the source has short rows.
    pub(crate) fn short(&self, bytes: usize) -> ShortRows {
        self.short[bytes.ilog2() as usize]
    }

    /// The body for rows of whole lanes and elements of `bytes`, a power of two up to 16.
    pub(crate) fn rows(&self, bytes: usize) -> RowsAt {
        self.rows[bytes.ilog2() as usize]
    }
}

impl Instance {
    /// The body for records, by its number in [`block`].
    pub(crate) fn records(&self, body: usize) -> Blocks {
        self.records[body]
    }

    /// The body for windows, which may be those of a lane each.
    pub(crate) fn windows(&self, by_lanes: bool) -> Windows {
        self.windows[usize::from(by_lanes)]
    }

    /// As it is on a processor that AMD made, of such a family, or on another.
    pub(crate) fn on(self, amd: Option<u32>) -> Instance {
        let (scatters, is_wide) = (amd.is_some(), amd.is_some_and(|family| family >= ZEN_5));
        Instance { abilities: Abilities { scatters, is_wide, ..self.abilities }, ..self }
    }

    /// As it is on a processor with other caches.
    pub(crate) fn with(self, caches: Caches) -> Instance {
        Instance { abilities: Abilities { caches, ..self.abilities }, ..self }
    }

    /// The body for `lanes` and elements of `bytes`, a power of two up to 16.
    pub(crate) fn transpose(&self, lanes: Lanes, bytes: usize) -> Transpose {
        self.transposes[lanes as usize][bytes.ilog2() as usize]
    }

    /// The body of long rows for elements of `bytes`, if they make squares.
    pub(crate) fn squares(&self, bytes: usize) -> Option<Squares> {
        let body = || self.squares.get(bytes.ilog2() as usize).copied();
        bytes.is_power_of_two().then(body).flatten()
    }
}

/// Bodies for elements of `E` bytes, with the instruction set `$features`.
macro_rules! bodies {
    ([$($features:literal)?] $($name:ident $body:expr),* $(,)?) => {
        bodies!(@ [$($features)?] $([$name $body])*);
    };
    (@ $features:tt $([$name:ident $body:expr])*) => { $(bodies!(# $features $name $body);)* };
    (# [$($features:literal)?] $name:ident $body:expr) => {
        /// # Safety
        /// As [`tile::along_b`], for the lanes at hand.
        $(#[target_feature(enable = $features)])?
        unsafe fn $name<const E: usize>(tile: &Tile, src: *const u8, dst: *mut u8) {
            // SAFETY: the caller's contract.
            unsafe { $body(tile, src, dst) }
        }
    };
}

/// One body for each size of elements.
macro_rules! sizes {
    ($body:ident) => {
        [$body::<1>, $body::<2>, $body::<4>, $body::<8>, $body::<16>]
    };
}

/// An instance of `$vector`, whose functions have the instruction set `$features`.
macro_rules! instance {
    ($module:ident, $vector:ty, $name:literal $(, $features:literal)?) => {
        mod $module {
            use super::*;

            bodies! {
                [$($features)?]
                along_b tile::along_b::<$vector, E, false>,
                copied tile::copied::<$vector, E>,
                lines tile::along_b::<$vector, E, true>,
                boxes tile::boxes::<$vector, E>,
                split narrow::split::<$vector, E, true>,
                split_cached narrow::split::<$vector, E, false>,
                join narrow::join::<$vector, E>,
                join_cached narrow::join_cached::<$vector, E>,
                along_a tile::along_a::<$vector, E>,
                along_o tile::along_o::<$vector, E>,
                short_a narrow::short_a::<$vector, E>,
                short_b narrow::short_b::<$vector, E>,
            }

            /// # Safety
            /// As [`tile::rows::rows`].
            $(#[target_feature(enable = $features)])?
            unsafe fn rows<const E: usize>(
                part: (&Tile, (usize, usize)),
                src: *const u8,
                dst: *mut u8,
            ) {
                // SAFETY: the caller's contract.
                unsafe { tile::rows::rows::<$vector, E>(part, src, dst) }
            }

            /// # Safety
            /// As [`flat::strips::copy_in`].
            $(#[target_feature(enable = $features)])?
            unsafe fn copy_in(panel: &Panel<'_>, src: *const u8, stage: &mut Stage) {
                // SAFETY: the caller's contract.
                unsafe { flat::strips::copy_in::<$vector>(panel, src, stage) }
            }

            /// # Safety
            /// As [`flat::strips::squares`].
            $(#[target_feature(enable = $features)])?
            unsafe fn squares<const E: usize>(
                panel: &Panel<'_>,
                strip: Strip,
                from: (Option<*const u8>, &mut Stage),
            ) {
                // SAFETY: the caller's contract.
                unsafe { flat::strips::squares::<$vector, E>(panel, strip, from) }
            }

            /// # Safety
            /// As [`flat::strips::flush`].
            $(#[target_feature(enable = $features)])?
            unsafe fn flush(panel: &Panel<'_>, strip: Strip, at: (*const u8, &mut Stage, *mut u8)) {
                // SAFETY: the caller's contract.
                unsafe { flat::strips::flush::<$vector>(panel, strip, at) }
            }

            /// # Safety
            /// As [`flat::through::through`].
            $(#[target_feature(enable = $features)])?
            unsafe fn through<const E: usize>(
                panel: &Panel<'_>,
                at: (*const u8, *mut u8, *mut u8),
            ) {
                // SAFETY: the caller's contract.
                unsafe { flat::through::through::<$vector, E>(panel, at) }
            }

            /// # Safety
            /// As [`flat::short::short`].
            $(#[target_feature(enable = $features)])?
            unsafe fn short<const E: usize>(rows: Short<'_>, at: (*const u8, *mut u8, *mut u8)) {
                // SAFETY: the caller's contract.
                unsafe { flat::short::short::<$vector, E>(rows, at) }
            }

            /// # Safety
            /// As [`record::block::run`].
            $(#[target_feature(enable = $features)])?
            unsafe fn records<const BODY: usize>(
                records: &Records<'_>,
                block: Block,
                at: (&Rows, &mut record::Stage<'_>),
            ) {
                // SAFETY: the caller's contract.
                unsafe { record::block::run::<$vector, BODY>(records, block, at) }
            }

            /// # Safety
            /// As [`record::block::windows`].
            $(#[target_feature(enable = $features)])?
            unsafe fn windows<const BY_LANES: bool>(
                records: &Records<'_>,
                block: Block,
                at: (&Rows, &Windowed),
            ) {
                // SAFETY: the caller's contract.
                unsafe { record::block::windows::<$vector, BY_LANES>(records, block, at) }
            }

            /// # Safety
            /// As [`gather::runs`].
            $(#[target_feature(enable = $features)])?
            unsafe fn gather(gather: &Gather<'_>, src: *const u8, dst: *mut u8) {
                // SAFETY: the caller's contract.
                unsafe { gather::runs::<$vector>(gather, src, dst) }
            }

            /// # Safety
            /// As [`stream::run`].
            $(#[target_feature(enable = $features)])?
            unsafe fn stream(src: *const u8, dst: *mut u8, run: (usize, bool)) {
                // SAFETY: the caller's contract.
                unsafe { stream::run::<$vector>(src, dst, run) }
            }

            /// # Safety
            /// As [`alike::row`].
            $(#[target_feature(enable = $features)])?
            unsafe fn alike(at: (*const u8, *mut u8), row: (&Mask, usize, Stores)) {
                // SAFETY: the caller's contract.
                unsafe { alike::row::<$vector>(at, row) }
            }

            /// # Safety
            /// As [`stream::splice`].
            $(#[target_feature(enable = $features)])?
            unsafe fn splice(rows: (usize, usize, usize), next: Option<*const u8>, stage: *mut u8, dst: *mut u8) {
                // SAFETY: the caller's contract.
                unsafe { stream::splice::<$vector>(rows, next, stage, dst) }
            }

            /// # Safety
            /// As [`runs::runs`].
            $(#[target_feature(enable = $features)])?
            unsafe fn runs(runs: &Runs, src: *const u8, dst: *mut u8) {
                // SAFETY: the caller's contract.
                unsafe { runs::runs::<$vector>(runs, src, dst) }
            }

            pub(super) const INSTANCE: Instance = Instance {
                name: $name,
                abilities: Abilities {
                    lanes: <$vector as Vector>::LANES,
                    unit_bytes: <$vector as Vector>::UNIT_BYTES,
                    masks: <$vector as Vector>::MASKS,
                    scatters: false,
                    is_wide: false,
                    caches: Caches::MEASURED,
                },
                transposes: [
                    sizes!(along_b),
                    sizes!(lines),
                    sizes!(boxes),
                    sizes!(copied),
                    sizes!(split),
                    sizes!(split_cached),
                    sizes!(join),
                    sizes!(join_cached),
                    sizes!(along_a),
                    sizes!(along_o),
                    sizes!(short_a),
                    sizes!(short_b),
                ],
                copy_in,
                squares: sizes!(squares),
                flush,
                records: [
                    records::<{ block::OTHERS }>,
                    records::<{ block::SQUARES }>,
                    records::<{ block::HYBRIDS }>,
                ],
                windows: [windows::<false>, windows::<true>],
                gather,
                whole: Whole { stream, alike },
                joined: Joined {
                    splice,
                    rows: sizes!(rows),
                    through: sizes!(through),
                    short: sizes!(short),
                },
                runs,
            };
        }
    };
}

instance!(portable, Scalar, "portable");
#[cfg(target_arch = "x86_64")]
instance!(avx2, crate::vector::avx2::Avx2, "AVX2", "avx2");
#[cfg(target_arch = "x86_64")]
instance!(avx512, crate::vector::avx512::Avx512<false>, "AVX-512", "avx512f,avx512bw");
#[cfg(target_arch = "x86_64")]
mod avx512vbmi {
    use super::*;
    use crate::vector::avx512::Avx512;

    /// # Safety
    /// As [`record::block::windows`].
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    unsafe fn windows(records: &Records<'_>, block: Block, at: (&Rows, &Windowed)) {
        // SAFETY: the caller's contract.
        unsafe { record::block::windows::<Avx512<true>, false>(records, block, at) }
    }

    /// # Safety
    /// As [`record::block::run`]. Longer units are picked faster without byte permutations.
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    unsafe fn records(records: &Records<'_>, block: Block, at: (&Rows, &mut record::Stage<'_>)) {
        // SAFETY: the caller's contract; without byte permutations it is less.
        unsafe {
            match records.picks_bytes() {
                true => record::block::run::<Avx512<true>, { block::OTHERS }>(records, block, at),
                false => (avx512::INSTANCE.records[block::OTHERS])(records, block, at),
            }
        }
    }

    /// # Safety
    /// As [`flat::through::through`].
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    unsafe fn through<const E: usize>(panel: &Panel<'_>, at: (*const u8, *mut u8, *mut u8)) {
        // SAFETY: the caller's contract.
        unsafe { flat::through::through::<Avx512<true>, E>(panel, at) }
    }

    /// # Safety
    /// As [`flat::short::short`].
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    unsafe fn short<const E: usize>(rows: Short<'_>, at: (*const u8, *mut u8, *mut u8)) {
        // SAFETY: the caller's contract.
        unsafe { flat::short::short::<Avx512<true>, E>(rows, at) }
    }

    /// As without byte permutations, but for windows, picks and what goes through registers.
    pub(super) const INSTANCE: Instance = Instance {
        name: "AVX-512 VBMI",
        abilities: Abilities {
            unit_bytes: <Avx512<true> as Vector>::UNIT_BYTES,
            ..avx512::INSTANCE.abilities
        },
        records: [
            records,
            avx512::INSTANCE.records[block::SQUARES],
            avx512::INSTANCE.records[block::HYBRIDS],
        ],
        windows: [windows, avx512::INSTANCE.windows[1]],
        joined: Joined {
            through: sizes!(through),
            short: sizes!(short),
            ..avx512::INSTANCE.joined
        },
        ..avx512::INSTANCE
    };
}
#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
instance!(neon, crate::vector::neon::Neon, "NEON", "neon");

#[cfg(test)]
instance!(emulated, crate::vector::emulated::Emulated<4>, "emulated");
#[cfg(test)]
instance!(emulated_halves, crate::vector::emulated::Emulated<2>, "emulated halves");

/// All that this processor can run, the best first; in tests also what it can't.
pub(crate) fn available() -> impl Iterator<Item = Instance> {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    let has_avx512 = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    let special = [
        (has_avx512 && is_x86_feature_detected!("avx512vbmi"), avx512vbmi::INSTANCE),
        (has_avx512, avx512::INSTANCE),
        (is_x86_feature_detected!("avx2"), avx2::INSTANCE),
    ];
    #[cfg(all(target_arch = "aarch64", target_endian = "little", not(miri)))]
    let special = [(std::arch::is_aarch64_feature_detected!("neon"), neon::INSTANCE)];
    #[cfg(any(
        miri,
        not(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")))
    ))]
    let special: [(bool, Instance); 0] = [];
    #[cfg(test)]
    let emulated = [emulated::INSTANCE, emulated_halves::INSTANCE];
    #[cfg(not(test))]
    let emulated = [];
    let special = special.into_iter().filter(|(has, _)| *has).map(|(_, it)| it);
    special.chain([portable::INSTANCE]).chain(emulated)
}

/// The best that this processor can run.
pub(crate) fn detect() -> &'static Instance {
    static BEST: LazyLock<Instance> = LazyLock::new(|| {
        let best = available().next().expect("the portable one runs everywhere");
        best.on(amd()).with(Caches::detect())
    });
    &BEST
}

/// The families of AMD's processors that a Zen 4 and a Zen 5 are of.
#[cfg(test)]
pub(crate) const ZEN_4: u32 = 0x19;
pub(crate) const ZEN_5: u32 = 0x1A;

/// The family of a processor that says that AMD made it. In a virtual machine that is asked of what runs it.
fn amd() -> Option<u32> {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::__cpuid;
        let maker = __cpuid(0);
        let name = [maker.ebx, maker.edx, maker.ecx].map(u32::to_le_bytes);
        (name.as_flattened() == b"AuthenticAMD").then(|| family_of(__cpuid(1).eax))
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    None
}

/// The family in a processor's signature: what four bits have no room for is in eight others.
#[cfg(any(test, all(target_arch = "x86_64", not(miri))))]
pub(crate) const fn family_of(signature: u32) -> u32 {
    match signature >> 8 & 0xF {
        0xF => 0xF + (signature >> 20 & 0xFF),
        family => family,
    }
}
