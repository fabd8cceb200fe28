//! A canonical copy as the rects that a device copies, each by one command (paper, section 3.4).
//!
//! A rect is rows of bytes, and slices of rows: on either side a row starts a row pitch behind the
//! one before it, and a slice a slice pitch. A pitch is at least as long as what it steps over, and
//! a slice pitch a multiple of the row pitch, or devices refuse it, or move other bytes. What no rect
//! holds is a loop of them: further dimensions, those that run backwards or stand still, the parts of
//! an index table whose entries are not equally far apart, and fields that differ.

use super::nest::{Loop, Nest, Nests, Turns};
use model::CopyList;

/// Bytes that one command moves. Places count from the start of either region; all are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rect {
    /// The first byte read.
    pub src: usize,
    /// The first byte written.
    pub dst: usize,
    /// Bytes of a row, rows of a slice, slices.
    pub size: [usize; 3],
    /// From row to row, and from slice to slice, of the source.
    pub src_pitch: [usize; 2],
    /// Likewise of the destination.
    pub dst_pitch: [usize; 2],
}

impl Rect {
    /// Whether it is one run of bytes.
    #[must_use]
    pub fn is_run(&self) -> bool {
        self.size[1] == 1 && self.size[2] == 1
    }
}

/// Entries of an index table that are a loop of rects: two of them may be one rect.
const LEAST_TURNS: u64 = 2;

/// What a device's API asks of rects besides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RectRules {
    /// The longest way from row to row. Rows that are farther apart are copied one by one.
    pub most_pitch_bytes: usize,
    /// Whether both sides have the same pitches where they are one region.
    pub equal_pitches_in_place: bool,
}

/// How the nests of a request become rects.
#[derive(Debug, Clone, Copy)]
struct Fit {
    most_pitch: i64,
    equal_pitches: bool,
    /// Whether both sides are one region: then no rect spans bytes that the other side touches.
    in_place: bool,
}

/// The rects of a list of copies whose bounds have been checked, made one at a time.
#[derive(Debug)]
pub struct Rects {
    nests: Nests,
    walk: Option<Walk>,
    fit: Fit,
}

impl Rects {
    /// The rects of `list` by `rules`, its offsets counted from `bases`; `in_place` where both sides
    /// are one region.
    #[must_use]
    pub fn new(list: CopyList, bases: (u64, u64), rules: RectRules, in_place: bool) -> Self {
        let fit = Fit {
            most_pitch: rules.most_pitch_bytes.try_into().unwrap_or(i64::MAX),
            equal_pitches: in_place && rules.equal_pitches_in_place,
            in_place,
        };
        Rects { nests: Nests::new(list, bases, LEAST_TURNS), walk: None, fit }
    }
}

impl Iterator for Rects {
    type Item = Rect;

    fn next(&mut self) -> Option<Rect> {
        loop {
            if let Some(rect) = self.walk.as_mut().and_then(Iterator::next) {
                return Some(rect);
            }
            self.walk = Some(Walk::over(self.nests.next()?, self.fit));
        }
    }
}

impl Nest {
    /// The loops that are rows and slices, by their places: those that leave the fewest rects.
    fn choice(&self, fit: Fit) -> (Option<usize>, Option<usize>) {
        if fit.in_place && self.overlaps_itself() {
            return (None, None);
        }
        let (mut best, mut most) = ((None, None), 1);
        for (r, row) in self.loops.iter().enumerate().filter(|(_, l)| self.is_row(l, fit)) {
            if row.count > most {
                (best, most) = ((Some(r), None), row.count);
            }
            for (s, slice) in self.loops.iter().enumerate() {
                let both = row.count.saturating_mul(slice.count);
                if s != r && both > most && is_slice(row, slice, fit) {
                    (best, most) = ((Some(r), Some(s)), both);
                }
            }
        }
        best
    }

    fn is_row(&self, l: &Loop, fit: Fit) -> bool {
        let pitches = self.bytes.cast_signed()..=fit.most_pitch;
        let fits = pitches.contains(&l.src) && pitches.contains(&l.dst);
        fits && (!fit.equal_pitches || l.src == l.dst)
    }

    /// Whether the bytes between the first and the last that are read touch those that are written.
    fn overlaps_itself(&self) -> bool {
        let hull = |start: i64, stride: fn(&Loop) -> i64| {
            let ends = self.loops.iter().map(|l| i128::from(stride(l)) * i128::from(l.count - 1));
            let (before, behind) =
                ends.fold((0, 0), |(b, e), way| (b + way.min(0), e + way.max(0)));
            let start = i128::from(start);
            start + before..start + behind + i128::from(self.bytes)
        };
        let (src, dst) = (hull(self.src, |l| l.src), hull(self.dst, |l| l.dst));
        src.start < dst.end && dst.start < src.end
    }
}

/// Whether the turns of `slice` can be slices of rows that are those of `row`.
fn is_slice(row: &Loop, slice: &Loop, fit: Fit) -> bool {
    let fits = |row_pitch: i64, slice_pitch: i64| {
        let rows = i128::from(row_pitch) * i128::from(row.count);
        i128::from(slice_pitch) >= rows && slice_pitch % row_pitch == 0
    };
    fits(row.src, slice.src)
        && fits(row.dst, slice.dst)
        && (!fit.equal_pitches || slice.src == slice.dst)
}

/// The rects of a nest: one, and the loops around it.
#[derive(Debug)]
struct Walk {
    first: Rect,
    turns: Turns,
}

impl Walk {
    fn over(mut nest: Nest, fit: Fit) -> Self {
        let (row, slice) = nest.choice(fit);
        let none = Loop { count: 1, src: 0, dst: 0 };
        let of = |place: Option<usize>| place.map_or(none, |k| nest.loops[k]);
        let (rows, slices) = (of(row), of(slice));
        let pitch = |row: i64, slice: i64| {
            let row = row.max(nest.bytes.cast_signed());
            [row as usize, slice.max(row * rows.count.cast_signed()) as usize]
        };
        let first = Rect {
            src: nest.src as usize,
            dst: nest.dst as usize,
            size: [nest.bytes as usize, rows.count as usize, slices.count as usize],
            src_pitch: pitch(rows.src, slices.src),
            dst_pitch: pitch(rows.dst, slices.dst),
        };
        let mut place = 0;
        nest.loops.retain(|_| {
            place += 1;
            Some(place - 1) != row && Some(place - 1) != slice
        });
        Walk { first, turns: Turns::of(nest.loops) }
    }
}

impl Iterator for Walk {
    type Item = Rect;

    fn next(&mut self) -> Option<Rect> {
        let (src, dst) = self.turns.next()?;
        let mut rect = self.first;
        rect.src = rect.src.wrapping_add(src as usize);
        rect.dst = rect.dst.wrapping_add(dst as usize);
        Some(rect)
    }
}

#[cfg(test)]
impl Rect {
    /// Where each of its runs is read and written.
    pub(super) fn runs(self) -> impl Iterator<Item = (usize, usize)> {
        let Rect { src, dst, size, src_pitch, dst_pitch } = self;
        (0..size[2]).flat_map(move |z| {
            (0..size[1]).map(move |y| {
                let way = |[row, slice]: [usize; 2]| y * row + z * slice;
                (src + way(src_pitch), dst + way(dst_pitch))
            })
        })
    }
}

#[cfg(test)]
mod tests;
