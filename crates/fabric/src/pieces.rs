//! A copy between memory here and memory of a peer, as pieces that messages hold: what lies there is
//! said in words, and what moves is packed.
//!
//! In all of these the source is here, and the destination there.

use model::{CopyDim, FieldCopy, NdCopy, Stride};
use std::sync::Arc;

/// `copy` the other way round.
pub(crate) fn turned(copy: &NdCopy) -> NdCopy {
    let dims = copy.dims.iter().map(|dim| CopyDim {
        extent: dim.extent,
        src_index: dim.dst_index.clone(),
        dst_index: dim.src_index.clone(),
    });
    let turn = |s: &Stride| Stride { src: s.dst, dst: s.src };
    let fields = copy.fields.iter().map(|field| FieldCopy {
        bytes: field.bytes,
        src_offset: field.dst_offset,
        dst_offset: field.src_offset,
        padding: 0,
        strides: field.strides.iter().map(turn).collect(),
    });
    NdCopy { dims: dims.collect(), fields: fields.collect() }
}

/// What `piece` takes from here, to where it lies packed from offset 0 on.
pub(crate) fn packing(piece: &NdCopy) -> NdCopy {
    let mut packing = piece.clone();
    let only = &mut packing.fields[0];
    (only.dst_offset, only.padding) = (0, 0);
    let mut step = only.bytes as i64;
    for (dim, stride) in packing.dims.iter_mut().zip(&mut only.strides).rev() {
        (dim.dst_index, stride.dst) = (None, step);
        step *= dim.extent as i64;
    }
    packing
}

/// Whether what a [`packing`] takes lies together in that order.
pub(crate) fn lies_packed(packing: &NdCopy) -> bool {
    let strides = &packing.fields[0].strides;
    let mut loops = packing.dims.iter().zip(strides);
    loops.all(|(dim, stride)| dim.src_index.is_none() && stride.src == stride.dst)
}

/// The copies of one field each that together are `copy`, whose words and bytes take at most `room`
/// bytes each, which is at least 64.
pub(crate) fn pieces(copy: &NdCopy, room: usize) -> Vec<NdCopy> {
    let bytes = |piece: &NdCopy| piece.payload_bytes().saturating_add(most_words(piece) as u64 * 8);
    fields(copy).flat_map(|field| cut(field, |piece| bytes(piece) <= room as u64)).collect()
}

/// Cuts `copy`, of one field, until its parts are small enough, or nothing is left to cut. Whether one is
/// has nothing to do with what its tables say.
fn cut(copy: NdCopy, is_small: impl Fn(&NdCopy) -> bool) -> Vec<NdCopy> {
    let mut pieces = Vec::new();
    // The last is cut first.
    let mut rest = vec![copy];
    while let Some(copy) = rest.pop() {
        let copy = folded(copy);
        let most = most_turns(copy.clone(), &is_small);
        if most == turns(&copy) {
            pieces.push(copy);
        } else {
            rest.extend(kernels::parts(&copy, most).rev());
        }
    }
    pieces
}

/// How many turns the outermost loop of a folded copy has, or bytes the one run.
fn turns(copy: &NdCopy) -> u64 {
    copy.dims.first().map_or(copy.fields[0].bytes, |dim| dim.extent)
}

/// How many turns of the outermost loop, or bytes of the one run, a part has where parts are small, and
/// else about equally large; where none is small enough, one.
fn most_turns(mut copy: NdCopy, is_small: impl Fn(&NdCopy) -> bool) -> u64 {
    let all = turns(&copy);
    let mut is_small = |turns| {
        match copy.dims.first_mut() {
            Some(dim) => dim.extent = turns,
            None => copy.fields[0].bytes = turns,
        }
        is_small(&copy)
    };
    let (mut most, mut too_many) = (1, all + 1);
    while too_many - most > 1 {
        let between = most + (too_many - most) / 2;
        *(if is_small(between) { &mut most } else { &mut too_many }) = between;
    }
    all.div_ceil(all.div_ceil(most))
}

/// A copy of one field as runs of bytes of its destination: the loops after the first `outer` go
/// through one run, in the order of its bytes, and those first from one to the next.
#[derive(Debug)]
pub(crate) struct Runs {
    pub(crate) copy: NdCopy,
    outer: usize,
}

impl Runs {
    /// The fields of `copy`, one after the other, in runs that are as long as can be; where they have
    /// `enough` bytes on both sides, as they are.
    pub(crate) fn of(copy: &NdCopy, enough: u64) -> impl Iterator<Item = Runs> {
        fields(copy).map(move |field| Runs::of_field(folded(field), enough))
    }

    fn of_field(NdCopy { mut dims, mut fields }: NdCopy, enough: u64) -> Runs {
        let (mut run, mut outer) = (fields[0].bytes, dims.len());
        let strides = &mut fields[0].strides;
        let goes_on = |dim: &CopyDim, stride: &Stride, run| {
            dim.dst_index.is_none() && u64::try_from(stride.dst) == Ok(run)
        };
        let is_enough = run >= enough;
        while let Some(k) = (0..outer).find(|&k| !is_enough && goes_on(&dims[k], &strides[k], run))
        {
            run *= dims[k].extent;
            dims[k..outer].rotate_left(1);
            strides[k..outer].rotate_left(1);
            outer -= 1;
        }
        Runs { copy: NdCopy { dims, fields }, outer }
    }

    /// How many bytes each has.
    pub(crate) fn bytes(&self) -> u64 {
        let inner = self.copy.dims[self.outer..].iter().map(|dim| dim.extent);
        self.copy.fields[0].bytes * inner.product::<u64>()
    }

    /// Whether they lie at the source as they do at the destination, and need no [`packing`].
    pub(crate) fn are_whole(&self) -> bool {
        self.outer == self.copy.dims.len()
    }

    /// Where they start on both sides, in the order in which they are packed.
    pub(crate) fn starts(&self) -> impl Iterator<Item = Stride> {
        let only = &self.copy.fields[0];
        let outer = &self.copy.dims[..self.outer];
        let count = outer.iter().map(|dim| dim.extent).product();
        (0..count).map(move |mut number: u64| {
            let mut start = Stride { src: only.src_offset, dst: only.dst_offset };
            for (dim, stride) in outer.iter().zip(&only.strides).rev() {
                let turn = number % dim.extent;
                number /= dim.extent;
                let place = |table: &Option<Arc<[u64]>>| {
                    table.as_ref().map_or(turn, |table| table[turn as usize]) as i64
                };
                // Right in the end, as in `folded`.
                let step =
                    |at: i64, stride: i64, place| at.wrapping_add(stride.wrapping_mul(place));
                start.src = step(start.src, stride.src, place(&dim.src_index));
                start.dst = step(start.dst, stride.dst, place(&dim.dst_index));
            }
            start
        })
    }

    /// Parts of at most `room` bytes.
    pub(crate) fn parts(self, room: u64) -> impl Iterator<Item = Runs> {
        let parts = cut(self.copy, |part| part.payload_bytes() <= room);
        parts.into_iter().map(|part| Runs::of_field(part, u64::MAX))
    }
}

fn fields(copy: &NdCopy) -> impl Iterator<Item = NdCopy> {
    copy.fields.iter().map(|f| NdCopy { dims: copy.dims.clone(), fields: vec![f.clone()] })
}

/// `copy`, of one field, without its loops of one turn. All that it touches was checked, so that
/// offsets are right in the end if they wrap between.
fn folded(copy: NdCopy) -> NdCopy {
    let mut only = FieldCopy { strides: Vec::new(), ..copy.fields[0] };
    let mut dims = Vec::new();
    for (dim, &stride) in copy.dims.into_iter().zip(&copy.fields[0].strides) {
        if dim.extent > 1 {
            dims.push(dim);
            only.strides.push(stride);
            continue;
        }
        let first = |table: &Option<Arc<[u64]>>| table.as_ref().map_or(0, |t| t[0]) as i64;
        let (src, dst) = (first(&dim.src_index), first(&dim.dst_index));
        only.src_offset = only.src_offset.wrapping_add(src.wrapping_mul(stride.src));
        only.dst_offset = only.dst_offset.wrapping_add(dst.wrapping_mul(stride.dst));
    }
    NdCopy { dims, fields: vec![only] }
}

/// How a table is said: by how many bytes an index.
const WIDE: u64 = 8;
const NARROW: u64 = 4;

/// The indexes of the destination that a loop has, and how they are said.
fn table(dim: &CopyDim) -> Option<(&[u64], u64)> {
    let table = &dim.dst_index.as_deref()?[..dim.extent as usize];
    let is_narrow = table.iter().fold(0, |all, index| all | index) <= u32::MAX.into();
    Some((table, if is_narrow { NARROW } else { WIDE }))
}

/// How many words such a table takes.
fn table_words(extent: u64, each: u64) -> usize {
    (extent * each).div_ceil(8) as usize
}

fn words(piece: &NdCopy, table: impl Fn(&CopyDim) -> usize) -> usize {
    3 + piece.dims.iter().map(|dim| 3 + table(dim)).sum::<usize>()
}

/// How many words [`describe`] says at most of what has these loops.
fn most_words(piece: &NdCopy) -> usize {
    words(piece, |dim| dim.dst_index.as_ref().map_or(0, |_| table_words(dim.extent, WIDE)))
}

/// How many bytes [`describe`] says of `piece`.
pub(crate) fn description_bytes(piece: &NdCopy) -> usize {
    8 * words(piece, |dim| table(dim).map_or(0, |(_, each)| table_words(dim.extent, each)))
}

/// Says in `to` where `piece` puts what is packed, if offset 0 is byte `at` there; `None` where that
/// passes 63 bits.
///
/// # Panics
/// Where `to` does not have [`description_bytes`].
pub(crate) fn describe(piece: &NdCopy, at: u64, to: &mut [u8]) -> Option<()> {
    let only = &piece.fields[0];
    let start = i64::try_from(at).ok()?.checked_add(only.dst_offset)?;
    let mut places = to.as_chunks_mut().0;
    say(&mut places, [start as u64, only.bytes, piece.dims.len() as u64].into_iter());
    for (dim, stride) in piece.dims.iter().zip(&only.strides) {
        let table = table(dim);
        let each = table.map_or(0, |(_, each)| each);
        say(&mut places, [dim.extent, stride.dst as u64, each].into_iter());
        match table {
            Some((table, NARROW)) => {
                let (pairs, last) = table.as_chunks();
                say(&mut places, pairs.iter().map(|[one, other]| one | other << 32));
                say(&mut places, last.iter().copied());
            }
            Some((table, _)) => say(&mut places, table.iter().copied()),
            None => {}
        }
    }
    Some(())
}

fn say(places: &mut &mut [[u8; 8]], words: impl ExactSizeIterator<Item = u64>) {
    let places = places.split_off_mut(..words.len()).expect("as many words as there are");
    places.iter_mut().zip(words).for_each(|(place, word)| *place = word.to_le_bytes());
}

/// What [`describe`] said, as a copy of packed bytes, and the bytes that follow; `None` for what it
/// never says, and for more than `most` bytes, as many as a message holds.
pub(crate) fn described(mut bytes: &[u8], most: usize) -> Option<(NdCopy, &[u8])> {
    let [start, run, count] = three_words(&mut bytes)?;
    let mut payload = run;
    let fits = |payload: &u64| (1..=most as u64).contains(payload);
    let mut dims = Vec::new();
    let mut strides = Vec::new();
    // Each loop has several turns.
    if count > most.ilog2().into() || !fits(&payload) {
        return None;
    }
    for _ in 0..count {
        let [extent, stride, each] = three_words(&mut bytes)?;
        payload = payload.checked_mul(extent).filter(fits)?;
        let table = match each {
            0 => None,
            WIDE | NARROW => Some(indexes(&mut bytes, extent, each)?),
            _ => return None,
        };
        dims.push(CopyDim { extent, src_index: None, dst_index: table });
        strides.push(Stride { src: 0, dst: stride as i64 });
    }
    let only =
        FieldCopy { bytes: run, src_offset: 0, dst_offset: start as i64, padding: 0, strides };
    // Packed on both sides, and then here only.
    let there = NdCopy { dims, fields: vec![only] };
    let mut packed = packing(&there);
    let only = &mut packed.fields[0];
    for (k, stride) in only.strides.iter_mut().enumerate() {
        *stride = Stride { src: stride.dst, dst: there.fields[0].strides[k].dst };
        packed.dims[k].dst_index.clone_from(&there.dims[k].dst_index);
    }
    only.dst_offset = start as i64;
    Some((packed, bytes))
}

/// The next words.
fn next_words<'a>(bytes: &mut &'a [u8], count: usize) -> Option<&'a [[u8; 8]]> {
    Some(bytes.split_off(..8 * count)?.as_chunks().0)
}

fn three_words(bytes: &mut &[u8]) -> Option<[u64; 3]> {
    let words = next_words(bytes, 3)?;
    Some([0, 1, 2].map(|k| u64::from_le_bytes(words[k])))
}

/// The next table, of so many indexes of so many bytes.
fn indexes(bytes: &mut &[u8], count: u64, each: u64) -> Option<Arc<[u64]>> {
    let words = next_words(bytes, table_words(count, each))?;
    if each == WIDE {
        return Some(words.iter().map(|&word| u64::from_le_bytes(word)).collect());
    }
    let narrow = &words.as_flattened().as_chunks().0[..count as usize];
    Some(narrow.iter().map(|&index| u32::from_le_bytes(index).into()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::MOST_BYTES;
    use proptest::prelude::*;

    /// What no narrow table says.
    const FAR: u64 = 1 << 33;

    /// Loops over a source of any order, and a destination in which nothing lies twice.
    fn copy() -> impl Strategy<Value = NdCopy> {
        let dim = (1_u64..7, any::<bool>(), any::<bool>(), 0_i64..200, any::<[bool; 2]>());
        (prop::collection::vec(dim, 0..4), 1_u64..40, 1_usize..3).prop_map(|(dims, run, fields)| {
            let mut step = (run * fields as u64) as i64;
            let mut start = 0;
            let mut strides = Vec::new();
            let dims: Vec<_> = dims
                .into_iter()
                .map(|(extent, has_src, has_dst, src, [is_back, is_far])| {
                    let dst = if is_back { -step } else { step };
                    strides.push(Stride { src, dst });
                    // Positions of every other place, the last first; some count from far below.
                    let first = if is_far { FAR } else { 0 };
                    let table = |has: bool, first: u64| {
                        has.then(|| {
                            (0..extent).rev().map(|i| first + 2 * i).collect::<Arc<[u64]>>()
                        })
                    };
                    let reach = if has_dst { 2 * extent - 1 } else { extent } as i64;
                    start += if is_back { step * (reach - 1) } else { 0 };
                    start -= if has_dst { dst * first as i64 } else { 0 };
                    step *= reach;
                    CopyDim {
                        extent,
                        src_index: table(has_src, 0),
                        dst_index: table(has_dst, first),
                    }
                })
                .collect();
            let field = |i: u64| FieldCopy {
                bytes: run,
                src_offset: 3 * i as i64,
                dst_offset: start + (i * run) as i64,
                padding: 0,
                strides: strides.clone(),
            };
            NdCopy { dims, fields: (0..fields as u64).map(field).collect() }
        })
    }

    #[test]
    fn what_is_never_said_is_nothing() {
        let is_said = |run: u64, dims: &[[u64; 3]], table: &[u64]| {
            let words =
                [0, run, dims.len() as u64].into_iter().chain(dims.iter().flatten().copied());
            let words = words.chain(table.iter().copied());
            let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
            described(&bytes, MOST_BYTES).is_some()
        };
        const MOST_DIMS: usize = MOST_BYTES.ilog2() as usize;
        let most = MOST_BYTES as u64;
        assert!(is_said(most, &[], &[]) && is_said(1, &[[2, 8, 0]; MOST_DIMS], &[]));
        assert!(is_said(8, &[[2, 8, 0], [2, 1, 8]], &[5, 1 << 40]));
        assert!(is_said(8, &[[2, 8, 0], [3, 1, 4]], &[5 | 6 << 32, 7]));
        for (run, dims, table) in [
            (0, &[][..], &[][..]),
            (most + 1, &[], &[]),
            (1, &[[1, 8, 0]; MOST_DIMS + 1], &[]),
            (most / 2, &[[3, 8, 0]], &[]),
            (2, &[[u64::MAX, 8, 0]], &[]),
            (8, &[[0, 8, 0]], &[]),
            (8, &[[2, 8, 2]], &[1, 1]),
            (8, &[[2, 8, 8]], &[1]),
            (8, &[[3, 8, 4]], &[1]),
        ] {
            assert!(!is_said(run, dims, table), "{run} {dims:?} {table:?}");
        }
        assert_eq!(described(&[0; 23], MOST_BYTES), None);
    }

    #[test]
    fn pages_that_are_turned_are_runs_of_the_destination() {
        // [page][token][head] to [page][head][token], pages by tables.
        let table = |of: [u64; 2]| Some(Arc::from(of));
        let dim = |extent| CopyDim { extent, src_index: None, dst_index: None };
        let page = CopyDim { extent: 2, src_index: table([1, 0]), dst_index: table([7, 3]) };
        let step = |src, dst| Stride { src, dst };
        let strides = vec![step(384, 384), step(128, 64), step(64, 192)];
        let only = FieldCopy { bytes: 64, src_offset: 0, dst_offset: 5, padding: 0, strides };
        let copy = NdCopy { dims: vec![page, dim(3), dim(2)], fields: vec![only] };
        let runs: Vec<_> = Runs::of(&copy, 65).collect();
        assert_eq!((runs.len(), runs[0].bytes(), runs[0].are_whole()), (1, 384, false));
        let starts: Vec<_> = runs[0].starts().map(|start| start.dst).collect();
        assert_eq!(starts, [5 + 7 * 384, 5 + 3 * 384]);
        let runs: Vec<_> = Runs::of(&copy, 64).collect();
        assert_eq!(
            (runs[0].bytes(), runs[0].are_whole(), runs[0].starts().count()),
            (64, true, 12)
        );
    }

    proptest! {
        #[test]
        fn pieces_that_were_packed_and_said_are_the_copy(copy in copy(), room in 64_usize..2000) {
            let src: Vec<u8> = (0..20_000_u32).map(|i| (i * 7 / 3) as u8).collect();
            let (mut direct, mut pieced) = (vec![0; 700_000], vec![0; 700_000]);
            let bounds = layout::touched(&copy).1;
            prop_assert!(bounds.start == 0 && bounds.end <= 699_990, "{bounds:?}");
            kernels::copy_slices(&copy, &src, 0, &mut direct, 10).unwrap();
            for piece in pieces(&copy, room) {
                let (start, payload) = (description_bytes(&piece), piece.payload_bytes() as usize);
                let mut message = vec![0; start + payload];
                prop_assert!(message.len() <= room || payload == 1);
                let (said, packed) = message.split_at_mut(start);
                describe(&piece, 10, said).unwrap();
                kernels::copy_slices(&packing(&piece), &src, 0, packed, 0).unwrap();
                let (there, packed) = described(&message, MOST_BYTES).unwrap();
                prop_assert_eq!(packed.len(), payload);
                kernels::copy_slices(&there, packed, 0, &mut pieced, 0).unwrap();
                prop_assert_eq!(turned(&turned(&there)), there);
            }
            prop_assert!(direct == pieced);
        }

        #[test]
        fn runs_that_were_put_are_the_copy(
            copy in copy(),
            (enough, room) in (1_u64..100, 1_u64..2000),
        ) {
            let src: Vec<u8> = (0..20_000_u32).map(|i| (i * 7 / 3) as u8).collect();
            let (mut direct, mut put) = (vec![0; 700_000], vec![0; 700_000]);
            kernels::copy_slices(&copy, &src, 0, &mut direct, 10).unwrap();
            let mut write = |start: Stride, bytes: &[u8]| {
                let at = 10 + start.dst as usize;
                put[at..at + bytes.len()].copy_from_slice(bytes);
            };
            for runs in Runs::of(&copy, enough) {
                let bytes = runs.bytes() as usize;
                if runs.are_whole() {
                    runs.starts().for_each(|s| write(s, &src[s.src as usize..][..bytes]));
                    continue;
                }
                prop_assert!(runs.copy.fields[0].bytes < enough);
                for part in runs.parts(room) {
                    let mut packed = vec![0; part.copy.payload_bytes() as usize];
                    prop_assert!(packed.len() as u64 <= room);
                    kernels::copy_slices(&packing(&part.copy), &src, 0, &mut packed, 0).unwrap();
                    let each = packed.chunks(part.bytes() as usize);
                    prop_assert_eq!(part.starts().count(), each.len());
                    part.starts().zip(each).for_each(|(start, run)| write(start, run));
                }
            }
            prop_assert!(direct == put);
        }

        #[test]
        fn nothing_that_is_said_makes_it_panic(
            small in prop::collection::vec(0_u64..6, 0..40),
            wild in prop::collection::vec((0_usize..40, any::<u64>()), 0..3),
        ) {
            let mut words = small;
            for (at, word) in wild {
                if let Some(place) = words.get_mut(at) {
                    *place = word;
                }
            }
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            if let Some((copy, rest)) = described(&bytes, MOST_BYTES) {
                prop_assert!(copy.payload_bytes() <= MOST_BYTES as u64 && copy.is_well_formed());
                let mut there = [0; 500];
                let _ = kernels::copy_slices(&copy, rest, 0, &mut there, 0);
            }
        }
    }
}
