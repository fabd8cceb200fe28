//! From one partition of an array to another, wherever the parts lie.

use crate::boxes::{IndexBox, gather};
use crate::event::{Event, State};
use crate::instance::Instance;
use crate::machine::Machine;
use crate::{ArgumentError, CopyOptions, Error, Mismatch};
use model::{NodeId, Span, TransferId};
use std::collections::HashMap;
use std::sync::Arc;

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
    /// is one, else from the first. Where several of `dst` have the same bounds, as replicas do, the
    /// first is filled from `src`, and the others from each other, as the branches of a tree are: no
    /// source sends more than twice.
    ///
    /// # Errors
    /// As [`Machine::copy`]; [`ArgumentError::NotCovered`] for indices that none of `src` has;
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
        if ready.is_empty() {
            return Ok(Event::new(Arc::new(State::nothing(&self.shared))));
        }
        let total = pieces.iter().map(|piece| piece.src.payload_bytes()).sum();
        let state = Arc::new(State::new(&self.shared, ready.len(), total));
        let event = Event::new(Arc::clone(&state));
        let mut filling: HashMap<usize, Vec<TransferId>> = HashMap::new();
        for (piece, ready) in pieces.iter().zip(&ready) {
            let after = piece.after.and_then(|before| filling.get(&before).cloned());
            let begun = self.begin(&state, ready, (options, after.unwrap_or_default()));
            filling.entry(piece.to).or_default().extend(begun);
        }
        Ok(event)
    }
}

/// What goes where.
fn pieces(src: &[Instance], dst: &[Instance]) -> Result<Vec<Piece>, Error> {
    let mut pieces = Vec::new();
    let mut replicas: HashMap<IndexBox, Vec<usize>> = HashMap::new();
    for (to, shard) in dst.iter().enumerate() {
        let names = names(shard);
        let wanted = box_of(shard, &names)?;
        let same = replicas.entry(wanted.clone()).or_default();
        same.push(to);
        if let Some(parent) = parent(same) {
            pieces.push(Piece {
                src: dst[parent].clone(),
                dst: shard.clone(),
                to,
                after: Some(parent),
            });
            continue;
        }
        for (from, part) in
            gather(&wanted, sources(src, shard, &names)?).map_err(not_covered(&names))?
        {
            let select = |instance: &Instance| {
                let ranges: Vec<_> =
                    names.iter().map(String::as_str).zip(part.0.iter().cloned()).collect();
                instance.select(&ranges)
            };
            pieces.push(Piece { src: select(&src[from])?, dst: select(shard)?, to, after: None });
        }
    }
    Ok(pieces)
}

/// Of replicas, from which the last is filled: each fills two.
fn parent(replicas: &[usize]) -> Option<usize> {
    Some(replicas[replicas.len().checked_sub(2)? / 2])
}

/// The sources' boxes in the order in which they are asked: those near a shard first.
fn sources(
    src: &[Instance],
    shard: &Instance,
    names: &[String],
) -> Result<Vec<(usize, IndexBox)>, Error> {
    let boxes = src.iter().enumerate().map(|(i, s)| Ok((i, box_of(s, names)?)));
    let mut boxes = boxes.collect::<Result<Vec<_>, Error>>()?;
    let here: NodeId = shard.memory().node;
    boxes.sort_by_key(|(i, _)| src[*i].memory().node != here);
    Ok(boxes)
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
        let range =
            |(name, r): (&String, &std::ops::Range<i64>)| format!("{name} {}..{}", r.start, r.end);
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
