//! From one partition of an array to another, wherever the parts lie.

use crate::boxes::{IndexBox, gather};
use crate::copy::Ready;
use crate::event::Event;
use crate::instance::Instance;
use crate::machine::Machine;
use crate::matching::check_apart;
use crate::{ArgumentError, CopyOptions, Error, Mismatch};
use model::{Span, TransferId};
use std::collections::HashMap;
use std::ops::Range;

/// A copy of a part of one shard into one of another.
struct Piece {
    src: Instance,
    dst: Instance,
    /// The piece's own destination, by position.
    to: usize,
    /// The destination that has to be whole before, since the piece comes from there.
    after: Option<usize>,
}

impl Machine {
    /// Copies an array that lies in `src`, each a box of it, to where it is to lie, `dst`: several
    /// copies with one event. A shard's bounds say which indices of the whole it has, and its
    /// dimensions have the same names everywhere; layouts and memories, of this node or others, are
    /// each shard's own.
    ///
    /// Where several of `src` have an index, it comes from one on the node where it is wanted, if there
    /// is one, else from the first. Where several of `dst` have the same bounds, as replicas do, those
    /// whose nodes have all of it are filled from there, the first of the others from `src`, and the rest
    /// from replicas before them, as the branches of a tree are: each fills two. What is where it should
    /// be stays.
    ///
    /// # Errors
    /// As [`Machine::copy`]; [`ArgumentError::NotCovered`] for indices that none of `src` has;
    /// [`ArgumentError::Overlap`] where one part would be written over what another is read from;
    /// [`Mismatch::Dim`]; none has started then.
    pub fn reshard(
        &self,
        src: &[Instance],
        dst: &[Instance],
        options: &CopyOptions,
    ) -> Result<Event, Error> {
        let mut pieces = pieces(src, dst)?;
        // Those that others wait for come first, and the largest of them, which take longest.
        pieces.sort_by_key(|p| (p.after.is_some(), p.to, std::cmp::Reverse(p.src.payload_bytes())));
        let ready = pieces.iter().map(|piece| self.ready(&piece.src, &piece.dst, options));
        let ready = ready.collect::<Result<Vec<_>, _>>()?;
        check_all_apart(&pieces, &ready)?;
        let event = self.event_of(&ready);
        let mut filling: HashMap<usize, Vec<TransferId>> = HashMap::new();
        for (piece, ready) in pieces.iter().zip(&ready) {
            let behind =
                piece.after.map(|before| filling.get(&before).cloned().unwrap_or_default());
            let begun = self.begin(&event.state, ready, (options, behind));
            filling.entry(piece.to).or_default().extend(begun);
        }
        Ok(event)
    }
}

/// What goes where.
fn pieces(src: &[Instance], dst: &[Instance]) -> Result<Vec<Piece>, Error> {
    // Boxes are compared, so that all are in one order of dimensions.
    let names = dst.first().map(names).unwrap_or_default();
    let sources = src.iter().map(|shard| box_of(shard, &names)).collect::<Result<Vec<_>, _>>()?;
    let mut pieces = Vec::new();
    let mut replicas: HashMap<IndexBox, Vec<usize>> = HashMap::new();
    for (to, shard) in dst.iter().enumerate() {
        let wanted = box_of(shard, &names)?;
        if wanted.0.iter().any(Range::is_empty) {
            continue;
        }
        let same = replicas.entry(wanted.clone()).or_default();
        same.push(to);
        let node = shard.memory().node;
        let (near, far): (Vec<_>, Vec<_>) =
            sources.iter().cloned().enumerate().partition(|(i, _)| src[*i].memory().node == node);
        let parts = match (gather(&wanted, near.clone()), parent(same)) {
            (Ok(parts), _) => parts,
            (Err(_), Some(parent)) => {
                let (src, dst, after) = (dst[parent].clone(), shard.clone(), Some(parent));
                pieces.push(Piece { src, dst, to, after });
                continue;
            }
            (Err(_), None) => {
                gather(&wanted, near.into_iter().chain(far)).map_err(not_covered(&names))?
            }
        };
        for (from, part) in parts {
            let (src, dst) = (select(&src[from], &names, &part)?, select(shard, &names, &part)?);
            let is_there = src.place() == dst.place() && src.view == dst.view;
            if !is_there {
                pieces.push(Piece { src, dst, to, after: None });
            }
        }
    }
    Ok(pieces)
}

fn select(shard: &Instance, names: &[String], part: &IndexBox) -> Result<Instance, Error> {
    let ranges: Vec<_> = names.iter().map(String::as_str).zip(part.0.iter().cloned()).collect();
    shard.select(&ranges)
}

/// Of replicas, from which the last is filled: each fills two.
fn parent(replicas: &[usize]) -> Option<usize> {
    Some(replicas[replicas.len().checked_sub(2)? / 2])
}

/// Refuses pieces one of which is written where another is read, unless that one comes behind it.
fn check_all_apart(pieces: &[Piece], ready: &[Ready<'_>]) -> Result<(), Error> {
    for (reader, reads) in pieces.iter().zip(ready) {
        let mut others = pieces.iter().zip(ready).filter(|(w, _)| reader.after != Some(w.to));
        others.try_for_each(|(writer, writes)| {
            let programs = (reads.program(), writes.program());
            match reader.src.may_share_bytes(&writer.dst) {
                true => check_apart((&reader.src, programs.0), (&writer.dst, programs.1)),
                false => Ok(()),
            }
        })?;
    }
    Ok(())
}

fn names(shard: &Instance) -> Vec<String> {
    shard.space().dims().iter().map(|dim| dim.name.to_string()).collect()
}

/// The indices of a shard, in the order of `names`.
fn box_of(shard: &Instance, names: &[String]) -> Result<IndexBox, Error> {
    let lacks = |name: &str| Mismatch::Dim { name: name.to_owned() };
    if let Some(dim) = shard.space().dims().iter().find(|d| names.iter().all(|n| **n != *d.name)) {
        return Err(lacks(&dim.name).into());
    }
    let range = |name: &String| {
        let at = shard.space().position(name).ok_or_else(|| lacks(name))?;
        match &shard.view.selection.spans()[at] {
            Span::Range { lo, hi } => Ok(*lo..*hi),
            Span::List(_) => Err(Error::from(ArgumentError::ShardOfList { name: name.clone() })),
        }
    };
    Ok(IndexBox(names.iter().map(range).collect::<Result<_, Error>>()?))
}

fn not_covered(names: &[String]) -> impl Fn(IndexBox) -> Error + '_ {
    |missing| {
        let range = |(name, r): (&String, &Range<i64>)| format!("{name} {}..{}", r.start, r.end);
        let missing = names.iter().zip(&missing.0).map(range).collect::<Vec<_>>().join(", ");
        ArgumentError::NotCovered { missing }.into()
    }
}

#[cfg(test)]
mod tests {
    use super::parent;

    #[test]
    fn replicas_are_filled_as_the_branches_of_a_tree() {
        let all = [4, 7, 9, 12, 13, 20];
        let parents: Vec<_> = (1..=6).map(|count| parent(&all[..count])).collect();
        assert_eq!(parents, [None, Some(4), Some(4), Some(7), Some(7), Some(9)]);
    }
}
