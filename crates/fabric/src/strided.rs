//! Puts and gets of what does not lie in one piece: vector, indexed, and strided of any rank (VIS).
//!
//! All are canonical copies, the form that the kernels take. Where the peer's memory is mapped they
//! move them at once. Else they pack pieces that messages hold, and the other side takes them apart.

use crate::active::Call;
use crate::conduit::{Puts, Queue, Run};
use crate::error::Error;
use crate::fabric::Fabric;
use crate::handle::Handle;
use crate::message::{Message, Payload};
use crate::pieces::{
    Runs, describe, described, description_bytes, lies_packed, packing, pieces, turned,
};
use crate::remote::{self, DATA, Ticket, arguments, bytes_of, numbers};
use crate::scratch::Scratch;
use model::{CopyDim, FieldCopy, NdCopy, NodeId, Stride};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How many bytes are packed before they are put: they are sent out of the second-level cache.
const PACKED_BYTES: u64 = 256 << 10;

/// The most runs that a conduit is given at once.
const RUNS: usize = 64;

pub(crate) const SCATTER: u8 = 7;
pub(crate) const GATHER: u8 = 8;

/// The copy of `counts[0]` bytes, of `counts[1]` such with strides `src[0]` and `dst[0]`, of
/// `counts[2]` of those, and so on: GASNet's strided form. Strides are in bytes.
///
/// # Panics
/// Where there is not one stride fewer than counts on both sides.
#[must_use]
pub fn strided(counts: &[u64], src: &[i64], dst: &[i64]) -> NdCopy {
    let (bytes, extents) = counts.split_first().expect("there is a count of bytes");
    assert_eq!([src.len(), dst.len()], [extents.len(); 2], "a stride for each count but the first");
    let dims = extents.iter().rev();
    let dims = dims.map(|&extent| CopyDim { extent, src_index: None, dst_index: None }).collect();
    let strides = src.iter().zip(dst).rev().map(|(&src, &dst)| Stride { src, dst }).collect();
    let only = FieldCopy { bytes: *bytes, src_offset: 0, dst_offset: 0, padding: 0, strides };
    NdCopy { dims, fields: vec![only] }
}

/// The copies that fill runs of the destination with those of the source, one after the other: the
/// vector and indexed forms of GASNet. A run is an offset and a number of bytes. Their numbers and
/// lengths may differ; `None` where they don't have as many bytes in all.
#[must_use]
pub fn runs(src: &[(u64, u64)], dst: &[(u64, u64)]) -> Option<Vec<NdCopy>> {
    let is_filled = |&(_, bytes): &(u64, u64)| bytes > 0;
    let mut src = src.iter().copied().filter(is_filled);
    let mut dst = dst.iter().copied().filter(is_filled);
    let mut by_length: BTreeMap<u64, [Vec<u64>; 2]> = BTreeMap::new();
    let (mut from, mut to) = (src.next(), dst.next());
    while let (Some((s, s_bytes)), Some((d, d_bytes))) = (from, to) {
        let bytes = s_bytes.min(d_bytes);
        let [sources, destinations] = by_length.entry(bytes).or_default();
        sources.push(s);
        destinations.push(d);
        from = if s_bytes > bytes {
            Some((s.checked_add(bytes)?, s_bytes - bytes))
        } else {
            src.next()
        };
        to = if d_bytes > bytes {
            Some((d.checked_add(bytes)?, d_bytes - bytes))
        } else {
            dst.next()
        };
    }
    let all = by_length.into_iter().map(|(bytes, [src, dst])| {
        let extent = src.len() as u64;
        let (src, dst) = (Places::of(src), Places::of(dst));
        let dim = CopyDim { extent, src_index: src.table, dst_index: dst.table };
        let strides = vec![Stride { src: src.stride, dst: dst.stride }];
        let only =
            FieldCopy { bytes, src_offset: src.first, dst_offset: dst.first, padding: 0, strides };
        NdCopy { dims: vec![dim], fields: vec![only] }
    });
    (from.is_none() && to.is_none()).then(|| all.collect())
}

/// Messages that were packed and not sent.
struct Packed<'a, 's> {
    fabric: &'a Fabric,
    to: NodeId,
    /// What was packed of them, one after the other.
    scratch: &'a mut Scratch,
    /// Where that ends of each, and what follows it as it lies.
    messages: Vec<(usize, &'s [u8])>,
    /// How many bytes they have.
    bytes: usize,
}

impl<'s> Packed<'_, 's> {
    /// Room for another message of so many bytes, which `rest` follows.
    fn next(&mut self, bytes: usize, rest: &'s [u8]) -> Result<&mut [u8], Error> {
        if self.bytes + bytes + rest.len() > PACKED_BYTES as usize {
            self.send()?;
        }
        self.bytes += bytes + rest.len();
        let start = self.end();
        self.messages.push((start + bytes, rest));
        Ok(&mut self.scratch.bytes(start + bytes)[start..])
    }

    fn end(&self) -> usize {
        self.messages.last().map_or(0, |&(end, _)| end)
    }

    fn send(&mut self) -> Result<(), Error> {
        let end = self.end();
        let packed = self.scratch.bytes(end);
        let mut start = 0;
        let message = |&(end, rest): &(usize, &'s [u8])| {
            let payload = Payload::Bytes(&packed[start..end]);
            start = end;
            Message { handler: SCATTER, args: &[], payload, rest }
        };
        let messages: Vec<_> = self.messages.iter().map(message).collect();
        self.fabric.send_all(self.to, Queue::Request, &messages)?;
        self.messages.clear();
        self.bytes = 0;
        Ok(())
    }
}

/// Where runs start on one side: as far apart as each other, or as a table says.
struct Places {
    first: i64,
    stride: i64,
    table: Option<Arc<[u64]>>,
}

impl Places {
    fn of(places: Vec<u64>) -> Places {
        Places::apart_alike(&places).unwrap_or_else(|| {
            let table = Some(Arc::from(places));
            Places { first: 0, stride: 1, table }
        })
    }

    fn apart_alike(places: &[u64]) -> Option<Places> {
        // Of what does not fit the differences say nothing.
        let step = |from: u64, to: u64| Some(i64::try_from(to).ok()? - from.cast_signed());
        let first = i64::try_from(*places.first()?).ok()?;
        let stride = places.get(1).map_or(Some(0), |&second| step(places[0], second))?;
        let is_step = |pair: &[u64]| step(pair[0], pair[1]) == Some(stride);
        places.windows(2).all(is_step).then_some(Places { first, stride, table: None })
    }
}

impl Fabric {
    /// Makes `copies` from `src`, where offset 0 is byte `base`, to the segment of `to`, where it is
    /// byte `at`. `src` may be reused at once.
    ///
    /// # Errors
    /// As [`Fabric::put`], and [`Error::OutOfBuffer`]; copies before the one that reaches outside may
    /// have been made.
    pub fn put_copies(
        &self,
        to: NodeId,
        copies: &[NdCopy],
        src: (&[u8], usize),
        at: u64,
    ) -> Result<Handle<'_>, Error> {
        if !self.send_copies((to, at), copies, src)? {
            return Ok(Handle::over(self));
        }
        let ticket = Ticket::new(self, to, 1, 0);
        self.put_by(Queue::Request, (to, 0), &[], ticket.id())?;
        Ok(Handle::of(self, ticket, &mut []))
    }

    /// Sends a request: `handler` of `to` runs with `args` once `copies` were made, as by
    /// [`Fabric::put_copies`], from `src` to the segment of `to`. So it is a long request of what does not
    /// lie in one piece (in GASNet-EX, a VIS put with peer completion), and takes one way where a put that
    /// is waited for and a request take three.
    ///
    /// # Errors
    /// As [`Fabric::put_copies`] and [`Fabric::request`].
    pub fn request_copies(
        &self,
        to: NodeId,
        (handler, args): (u8, &[u32]),
        copies: &[NdCopy],
        (src, base, at): (&[u8], usize, u64),
    ) -> Result<(), Error> {
        self.outside("send requests")?;
        let message = Message { handler, args, payload: Payload::None, rest: &[] };
        self.check_message(to, &message)?;
        self.send_copies((to, at), copies, (src, base))?;
        self.send(to, Queue::Request, &message)
    }

    /// Makes copies where memory is mapped, and else sends them ahead of a message that follows in the
    /// queue of requests; returns whether it sent them.
    fn send_copies(
        &self,
        (to, at): (NodeId, u64),
        copies: &[NdCopy],
        src: (&[u8], usize),
    ) -> Result<bool, Error> {
        self.check(to, at, 0)?;
        let start = usize::try_from(at).map_err(|_| self.beyond(to, at, 0))?;
        let outside = |copy: &NdCopy, side| match side {
            "source" => Error::OutOfBuffer { bytes: src.0.len() },
            _ => self.beyond(to, at, copy.payload_bytes() as usize),
        };
        if let Some(segment) = self.mapped(to) {
            for copy in copies {
                segment.scatter(copy, src, start).map_err(|e| outside(copy, e.side))?;
            }
            return Ok(false);
        }
        self.outside("reach memory that is not mapped")?;
        let there = (start, self.published_bytes(to));
        let mut scratch = Scratch::take();
        for copy in copies.iter().filter(|copy| copy.payload_bytes() > 0) {
            kernels::check_bounds(copy, (src.1, src.0.len()), there)
                .map_err(|e| outside(copy, e.side))?;
            self.send_pieces((to, at), copy, src, &mut scratch)?;
        }
        Ok(true)
    }

    /// Sends what a copy moves: long runs to where they belong, and else messages that say where their
    /// bytes do.
    fn send_pieces(
        &self,
        to: (NodeId, u64),
        copy: &NdCopy,
        src: (&[u8], usize),
        scratch: &mut Scratch,
    ) -> Result<(), Error> {
        let puts = self.conduit().puts();
        for runs in Runs::of(copy, puts.map_or(u64::MAX, Puts::run_bytes)) {
            match puts.filter(|puts| runs.bytes() >= puts.run_bytes()) {
                Some(puts) if runs.are_whole() => self.put_runs(puts, to, &runs, src)?,
                Some(puts) => self.pack_runs(puts, to, runs, (src, scratch))?,
                None => self.send_described(to, &runs.copy, src, scratch)?,
            }
        }
        Ok(())
    }

    /// Puts runs that lie in `src` as they do there.
    fn put_runs(
        &self,
        puts: &dyn Puts,
        (to, at): (NodeId, u64),
        runs: &Runs,
        (src, base): (&[u8], usize),
    ) -> Result<(), Error> {
        let bytes = runs.bytes() as usize;
        let all = runs.starts().map(|start| {
            let here = base.wrapping_add_signed(start.src as isize);
            (at.wrapping_add_signed(start.dst), &src[here..here + bytes])
        });
        self.put_some(puts, to, all)
    }

    /// Puts runs, some at a time.
    fn put_some<'a>(
        &self,
        puts: &dyn Puts,
        to: NodeId,
        mut runs: impl Iterator<Item = Run<'a>>,
    ) -> Result<(), Error> {
        loop {
            let mut some = [(0, &[][..]); RUNS];
            let count = some.iter_mut().zip(&mut runs).map(|(place, run)| *place = run).count();
            if count == 0 {
                return Ok(());
            }
            self.put_directly(puts, Queue::Request, to, &mut some[..count])?;
        }
    }

    /// Packs runs, as many as the caches hold, and puts them.
    fn pack_runs(
        &self,
        puts: &dyn Puts,
        (to, at): (NodeId, u64),
        runs: Runs,
        ((src, base), scratch): ((&[u8], usize), &mut Scratch),
    ) -> Result<(), Error> {
        for part in runs.parts(PACKED_BYTES) {
            let buffer = scratch.bytes(part.copy.payload_bytes() as usize);
            kernels::copy_slices(&packing(&part.copy), src, base, buffer, 0)
                .expect("a part of what was checked");
            let starts = part.starts().map(|start| at.wrapping_add_signed(start.dst));
            self.put_some(puts, to, starts.zip(buffer.chunks(part.bytes() as usize)))?;
        }
        Ok(())
    }

    /// Sends messages that say where their bytes belong, as many at once as the caches hold.
    fn send_described(
        &self,
        (to, at): (NodeId, u64),
        copy: &NdCopy,
        (src, base): (&[u8], usize),
        scratch: &mut Scratch,
    ) -> Result<(), Error> {
        let mut packed = Packed { fabric: self, to, scratch, messages: Vec::new(), bytes: 0 };
        for piece in pieces(copy, self.conduit().medium_bytes(to)) {
            let payload = piece.payload_bytes() as usize;
            let only = &piece.fields[0];
            let start = base.wrapping_add_signed(only.src_offset as isize);
            if piece.dims.is_empty() {
                // One run of bytes, which needs no words.
                let there = at.wrapping_add_signed(only.dst_offset);
                self.put_ahead(Queue::Request, (to, there), &src[start..start + payload])?;
                continue;
            }
            let packing = packing(&piece);
            let lies_packed = lies_packed(&packing);
            let (room, rest) =
                if lies_packed { (0, &src[start..start + payload]) } else { (payload, &[][..]) };
            let said = description_bytes(&piece);
            let (words, bytes) = packed.next(said + room, rest)?.split_at_mut(said);
            describe(&piece, at, words).ok_or_else(|| self.beyond(to, at, payload))?;
            if !lies_packed {
                kernels::copy_slices(&packing, src, base, bytes, 0)
                    .expect("a part of what was checked");
            }
        }
        packed.send()
    }

    /// Makes `copies` from the segment of `from`, where offset 0 is byte `at`, to `dst`, where it is
    /// byte `base`.
    ///
    /// # Errors
    /// As [`Fabric::put_copies`].
    pub fn get_copies<'a>(
        &'a self,
        from: NodeId,
        copies: &[NdCopy],
        at: u64,
        (dst, base): (&'a mut [u8], usize),
    ) -> Result<Handle<'a>, Error> {
        self.check(from, at, 0)?;
        let start = usize::try_from(at).map_err(|_| self.beyond(from, at, 0))?;
        let bytes = dst.len();
        let outside = |copy: &NdCopy, side| match side {
            "source" => self.beyond(from, at, copy.payload_bytes() as usize),
            _ => Error::OutOfBuffer { bytes },
        };
        if let Some(segment) = self.mapped(from) {
            for copy in copies {
                segment.gather(copy, start, (dst, base)).map_err(|e| outside(copy, e.side))?;
            }
            self.check_still(from)?;
            return Ok(Handle::over(self));
        }
        self.outside("reach memory that is not mapped")?;
        let there = (start, self.published_bytes(from));
        let mut all = Vec::new();
        for copy in copies.iter().filter(|copy| copy.payload_bytes() > 0) {
            kernels::check_bounds(copy, there, (base, bytes)).map_err(|e| outside(copy, e.side))?;
            all.extend(pieces(&turned(copy), self.conduit().medium_bytes(from)));
        }
        self.ask_pieces(from, &all, at, (dst, base))
    }

    fn ask_pieces<'a>(
        &'a self,
        from: NodeId,
        pieces: &[NdCopy],
        at: u64,
        into: (&'a mut [u8], usize),
    ) -> Result<Handle<'a>, Error> {
        let bytes = pieces.iter().map(NdCopy::payload_bytes).sum::<u64>() as usize;
        let ticket = Ticket::new(self, from, pieces.len(), bytes);
        let mut unpacking = Vec::with_capacity(pieces.len());
        let (mut message, mut offset) = (Vec::new(), 0);
        for piece in pieces {
            let payload = piece.payload_bytes() as usize;
            message.resize(description_bytes(piece), 0);
            describe(piece, at, &mut message).ok_or_else(|| self.beyond(from, at, payload))?;
            let args = arguments([ticket.id(), offset as u64]);
            let payload_of = Payload::Bytes(&message);
            let asked = Message { handler: GATHER, args: &args, payload: payload_of, rest: &[] };
            self.send(from, Queue::Request, &asked)?;
            unpacking.push((turned(&packing(piece)), offset));
            offset += payload;
        }
        Ok(Handle::unpacking(self, ticket, unpacking, into))
    }
}

/// Takes apart what was packed.
pub(crate) fn scatter_asked(call: &Call<'_>) -> Option<()> {
    let (copy, packed) = described(bytes_of(call), call.medium_bytes())?;
    call.fabric().segment().scatter(&copy, (packed, 0), 0).ok()
}

/// Packs what was asked for.
pub(crate) fn gather_asked(call: &Call<'_>) -> Option<()> {
    let [id, offset] = numbers(call.args())?;
    let (copy, _) = described(bytes_of(call), call.medium_bytes())?;
    let mut scratch = Scratch::take();
    let buffer = scratch.bytes(usize::try_from(copy.payload_bytes()).ok()?);
    call.fabric().segment().gather(&turned(&copy), 0, (buffer, 0)).ok()?;
    remote::answer(call, DATA, &arguments([id, offset]), buffer);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn runs_are_filled_in_their_order(
            lengths in prop::collection::vec(0_u64..9, 0..12),
            cuts in prop::collection::vec(0_u64..9, 0..12),
        ) {
            // Runs two bytes apart; the destination's are others, of as many bytes in all.
            let apart = |lengths: &[u64]| {
                let mut at = 0;
                let run = |&bytes: &u64| {
                    at += bytes + 2;
                    (at - bytes, bytes)
                };
                lengths.iter().map(run).collect::<Vec<_>>()
            };
            let mut left: u64 = lengths.iter().sum();
            let mut theirs: Vec<u64> = cuts.iter().map(|&cut| {
                let some = cut.min(left);
                left -= some;
                some
            }).collect();
            theirs.push(left);
            let (src_runs, dst_runs) = (apart(&lengths), apart(&theirs));
            let src: Vec<u8> = (1..=200).collect();
            let (mut dst, mut expected) = ([0; 200], [0; 200]);
            let places = |runs: &[(u64, u64)]| {
                runs.iter().flat_map(|&(at, bytes)| at..at + bytes).collect::<Vec<_>>()
            };
            for (from, to) in places(&src_runs).into_iter().zip(places(&dst_runs)) {
                expected[to as usize] = src[from as usize];
            }
            for copy in runs(&src_runs, &dst_runs).unwrap() {
                kernels::copy_slices(&copy, &src, 0, &mut dst, 0).unwrap();
            }
            prop_assert_eq!(dst, expected);
            theirs.push(1);
            prop_assert!(runs(&src_runs, &apart(&theirs)).is_none());
        }
    }

    #[test]
    fn runs_that_are_apart_alike_need_no_table() {
        let of = |places: &[u64]| {
            let runs_at: Vec<_> = places.iter().map(|&at| (at, 4)).collect();
            let whole = [(0, 4 * places.len() as u64)];
            let copy = runs(&runs_at, &whole).unwrap().remove(0);
            let (only, dim) = (&copy.fields[0], &copy.dims[0]);
            assert_eq!(
                (only.dst_offset, only.strides[0].dst),
                (0, 4 * i64::from(places.len() > 1))
            );
            (only.src_offset, only.strides[0].src, dim.src_index.clone())
        };
        assert_eq!(of(&[8]), (8, 0, None));
        assert_eq!(of(&[8, 20, 32]), (8, 12, None));
        assert_eq!(of(&[32, 20, 8]), (32, -12, None));
        // As far as numbers reach, nothing is taken for what lies before the first.
        for places in [&[8, 20, 33][..], &[10, u64::MAX - 5], &[u64::MAX - 5], &[1 << 62, 3 << 62]]
        {
            assert_eq!(of(places), (0, 1, Some(Arc::from(places))), "{places:?}");
        }
    }
}
