//! A canonical copy as launches of kernels that convert layouts on a device.
//!
//! A launch copies elements, each of the most bytes that a kernel moves at once and that every place
//! is a multiple of. Its loops are cut into tiles, and each group of work items takes one: the first
//! three loops are the tile's, and the others choose it. Where the loops that are fastest on either
//! side differ, the tile goes through the group's own memory, so that neighbours read neighbours and
//! write neighbours; elsewhere each element goes straight to its place. A side of a turned tile whose
//! rows are whole words of several elements is moved by words. What differs in its first place only
//! (fields, the entries of an index table) is one launch with several starts.

use super::nest::{Loop, Nest, Nests, Turns};
use model::CopyList;
use std::cmp::Reverse;

/// The kernels, in what C, OpenCL C and CUDA C have in common. In front of it stand macros that say
/// in a device's language what the head of the text lists.
pub const KERNELS: &str = include_str!("launch/kernels.c");

/// Bytes of the widest elements that a kernel moves: what it moves between starts at multiples of that.
pub const ELEMENT_BYTES: u64 = 16;

/// Work items of a group; the kernels need exactly as many.
pub const GROUP_ITEMS: usize = 256;

/// Loops of a launch. What has more is launched with more starts.
const MOST_LOOPS: usize = 8;

/// Loops that a tile spans.
const TILE_LOOPS: usize = 3;

/// Starts of a launch.
const MOST_STARTS: usize = 32;

/// Entries of an index table that are a loop of a launch. Each two would be a launch, since the next two
/// are another distance apart; single ones share one.
const LEAST_TURNS: u64 = 3;

/// Groups for each start: nothing urgent waits longer than for these, and no count passes 32 bits.
const MOST_GROUPS: u64 = 1 << 18;

/// One of the kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Kernel {
    /// Bytes of an element: 1, 2, 4, 8 or 16.
    pub bytes: usize,
    /// Whether tiles are turned in the group's memory.
    pub turns: bool,
}

impl Kernel {
    /// What it is called in [`KERNELS`].
    #[must_use]
    pub fn name(self) -> String {
        format!("{}{}", if self.turns { "turn" } else { "copy" }, self.bytes)
    }

    /// The longest side of a turned tile, as a power of two: 64 bytes or more, which is what a device
    /// moves well, and short enough that a group's memory, 32 KiB on the least of devices, has room for
    /// the tile and half of it.
    fn side_log2(self) -> u32 {
        if self.bytes <= 4 { 6 } else { 5 }
    }

    /// The most elements of a tile, as a power of two. Of what goes straight to its place these are 4 KiB,
    /// so that a launch of little has many groups too.
    fn area_log2(self) -> u32 {
        if self.turns { 2 * self.side_log2() } else { 12 - self.bytes.ilog2() }
    }

    /// Bytes of the words that a side of a turned tile may be moved by. Wider ones are fewer requests, and
    /// more elements that an item gathers one by one in the group's memory.
    fn word_bytes(self) -> usize {
        if self.bytes <= 2 { 8 } else { 16 }
    }
}

/// A loop of a launch. Its layout is that of `Loop` in [`KERNELS`].
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct TiledLoop {
    /// How often it turns.
    count: u32,
    /// How many tiles these turns take.
    tiles: u32,
    /// Turns of a tile, as a power of two.
    log2: u32,
    unused: u32,
    /// From turn to turn, in bytes.
    src: i64,
    dst: i64,
}

/// Where a launch starts on either side. Its layout is that of `Start` in [`KERNELS`].
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Start {
    src: i64,
    dst: i64,
}

/// What a kernel is told. Its layout is that of `Launch` in [`KERNELS`].
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameters {
    loops: [TiledLoop; MOST_LOOPS],
    starts: [Start; MOST_STARTS],
    /// How many of the loops there are, at least [`TILE_LOOPS`].
    rank: u32,
    /// See [`Form::words`].
    words: u32,
}

/// One launch of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// Which.
    pub kernel: Kernel,
    loops: Vec<TiledLoop>,
    starts: Vec<Start>,
    /// See [`Form::words`].
    words: u32,
}

impl Launch {
    /// How many groups of [`GROUP_ITEMS`] it needs.
    #[must_use]
    pub fn groups(&self) -> usize {
        let tiles: usize = self.loops.iter().map(|l| l.tiles as usize).product();
        tiles * self.starts.len()
    }

    /// What the kernel is told.
    #[must_use]
    pub fn parameters(&self) -> Parameters {
        let mut parameters = Parameters {
            loops: Default::default(),
            starts: Default::default(),
            rank: self.loops.len() as u32,
            words: self.words,
        };
        parameters.loops[..self.loops.len()].copy_from_slice(&self.loops);
        parameters.starts[..self.starts.len()].copy_from_slice(&self.starts);
        parameters
    }

    /// Whether both differ in their starts only.
    fn is_like(&self, other: &Launch) -> bool {
        self.kernel == other.kernel && self.loops == other.loops && self.words == other.words
    }
}

/// The launches of a list of copies whose bounds have been checked, made one at a time.
#[derive(Debug)]
pub struct Launches {
    nests: Nests,
    /// What is left of the nest that was taken last.
    forms: Vec<Form>,
    /// A launch and the loops that no launch holds, whose turns are starts of it.
    current: Option<(Launch, Start, Turns)>,
    /// What waits for more starts.
    pending: Option<Launch>,
    most_groups: u64,
}

impl Launches {
    /// The launches of `list`, its offsets counted from `bases`. Both regions start at multiples of
    /// [`ELEMENT_BYTES`].
    #[must_use]
    pub fn new(list: CopyList, bases: (u64, u64)) -> Self {
        Self::within(MOST_GROUPS, list, bases)
    }

    /// As [`Launches::new`], with so many groups for each start, at least one.
    fn within(most_groups: u64, list: CopyList, bases: (u64, u64)) -> Self {
        let nests = Nests::new(list, bases, LEAST_TURNS);
        Launches { nests, forms: Vec::new(), current: None, pending: None, most_groups }
    }

    /// A launch with one start, of all that there are.
    fn next_single(&mut self) -> Option<Launch> {
        loop {
            if let Some((launch, first, turns)) = &mut self.current
                && let Some((src, dst)) = turns.next()
            {
                let start =
                    Start { src: first.src.wrapping_add(src), dst: first.dst.wrapping_add(dst) };
                return Some(Launch { starts: vec![start], ..launch.clone() });
            }
            let form = self.next_form()?;
            self.current = Some(form.launch());
        }
    }

    /// The next form that is small enough for a launch.
    fn next_form(&mut self) -> Option<Form> {
        let mut form = match self.forms.pop() {
            Some(form) => form,
            None => Form::of(self.nests.next()?),
        };
        while form.groups() > self.most_groups {
            let (first, second) = form.halves();
            self.forms.push(second);
            form = first;
        }
        Some(form)
    }
}

impl Iterator for Launches {
    type Item = Launch;

    fn next(&mut self) -> Option<Launch> {
        while let Some(single) = self.next_single() {
            match &mut self.pending {
                Some(launch) if launch.is_like(&single) && launch.starts.len() < MOST_STARTS => {
                    launch.starts.extend(single.starts);
                }
                pending => {
                    if let Some(whole) = pending.replace(single) {
                        return Some(whole);
                    }
                }
            }
        }
        self.pending.take()
    }
}

/// A nest in elements: its loops in the order in which a launch takes them.
#[derive(Debug, Clone)]
struct Form {
    kernel: Kernel,
    start: Start,
    loops: Vec<Loop>,
}

impl Form {
    fn of(nest: Nest) -> Self {
        let Nest { bytes, src, dst, mut loops } = nest;
        let strides = loops.iter().flat_map(|l| [l.src, l.dst]);
        let places = [src, dst, bytes.cast_signed()].into_iter().chain(strides);
        let most = ELEMENT_BYTES.cast_signed();
        let bits = places.fold(most, |bits, place| bits | place);
        let width = 1u64 << bits.trailing_zeros();
        if bytes > width {
            let step = width.cast_signed();
            loops.push(Loop { count: bytes / width, src: step, dst: step });
        }
        loops.sort_by_key(|l| (l.dst, l.src));
        let turns = bring_source_first(&mut loops);
        let kernel = Kernel { bytes: width as usize, turns };
        Form { kernel, start: Start { src, dst }, loops }
    }

    /// Turns of a tile along each loop that it spans, as powers of two. A loop that is short leaves
    /// the others more.
    fn tile(&self) -> [u32; TILE_LOOPS] {
        let side = self.kernel.side_log2();
        let length = |at: usize| {
            let count = self.loops.get(at).map_or(1, |l| l.count);
            count.next_power_of_two().trailing_zeros()
        };
        let area = self.kernel.area_log2();
        let [first, second, third] = [0, 1, 2].map(length);
        let at_first = first.min(if self.kernel.turns { side } else { area });
        let second = second.min(area - at_first);
        let first = first.min(area - second);
        [first, second, third.min(area - first - second)]
    }

    /// The loops that a launch holds; its tiles cover all turns.
    fn tiled(&self) -> impl Iterator<Item = (Loop, u32)> {
        let none = Loop { count: 1, src: 0, dst: 0 };
        let held = self.loops.iter().copied().take(MOST_LOOPS);
        let missing = TILE_LOOPS.saturating_sub(self.loops.len());
        let logs = self.tile().into_iter().chain([0; MOST_LOOPS]);
        held.chain(std::iter::repeat_n(none, missing)).zip(logs)
    }

    /// Groups that a launch needs for one start.
    fn groups(&self) -> u64 {
        let tiles = self.tiled().map(|(l, log2)| l.count.div_ceil(1 << log2));
        tiles.fold(1, u64::saturating_mul)
    }

    /// The turns of the longest loop that a launch holds in two parts.
    fn halves(mut self) -> (Form, Form) {
        let held = self.loops.iter().enumerate().take(MOST_LOOPS);
        let longest = held.max_by_key(|(at, l)| (l.count, Reverse(*at))).map_or(0, |(at, _)| at);
        let mut second = self.clone();
        let l = &mut self.loops[longest];
        let half = l.count / 2;
        second.loops[longest].count -= half;
        l.count = half;
        let way = |stride: i64| stride.wrapping_mul(half.cast_signed());
        second.start.src = second.start.src.wrapping_add(way(l.src));
        second.start.dst = second.start.dst.wrapping_add(way(l.dst));
        (self, second)
    }

    /// The sides on which a turned tile is moved by words, 1 for the source's and 2 for the destination's:
    /// where elements lie side by side, each row is of whole words, and all start at multiples of these.
    fn words(&self) -> u32 {
        let (bytes, word) = (self.kernel.bytes as i64, self.kernel.word_bytes() as i64);
        let has_words = |along: usize, start: i64, stride: fn(&Loop) -> i64| {
            let row = self.loops[along];
            let others = self.loops.iter().enumerate().filter(|&(at, _)| at != along);
            let mut places =
                others.map(|(_, l)| stride(l)).chain([start, row.count as i64 * bytes]);
            stride(&row) == bytes && places.all(|place| place % word == 0)
        };
        let src = has_words(0, self.start.src, |l| l.src);
        let dst = has_words(1, self.start.dst, |l| l.dst);
        u32::from(src) | u32::from(dst) << 1
    }

    /// As a launch without starts, the first of these, and the loops that it doesn't hold.
    fn launch(mut self) -> (Launch, Start, Turns) {
        let tiled = |(l, log2): (Loop, u32)| TiledLoop {
            count: l.count as u32,
            tiles: l.count.div_ceil(1 << log2) as u32,
            log2,
            unused: 0,
            src: l.src,
            dst: l.dst,
        };
        let loops = self.tiled().map(tiled).collect();
        // A tile of one element along the first loop has nothing to turn, nor the room for it.
        let kernel = Kernel { turns: self.kernel.turns && self.tile()[0] > 0, ..self.kernel };
        let words = if kernel.turns { self.words() } else { 0 };
        let others = self.loops.split_off(self.loops.len().min(MOST_LOOPS));
        (Launch { kernel, loops, starts: Vec::new(), words }, self.start, Turns::of(others))
    }
}

/// Brings the loop that is fastest on the source's side to the front of `loops`, which the
/// destination's fastest leads; says whether that is another.
fn bring_source_first(loops: &mut [Loop]) -> bool {
    // What stands still is read again in any order.
    let way = |l: &Loop| (l.src == 0, l.src.unsigned_abs());
    let fastest = (0..loops.len()).min_by_key(|&at| way(&loops[at])).unwrap_or(0);
    if fastest > 0 {
        loops[..=fastest].rotate_right(1);
    }
    fastest > 0
}

#[cfg(test)]
mod tests;
