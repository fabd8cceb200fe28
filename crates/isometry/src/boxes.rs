//! Boxes of indices: what two share, and what of one lies outside of another.

use std::ops::Range;

/// Half-open ranges of absolute indices, one for each dimension, in an order that all share.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct IndexBox(pub(crate) Vec<Range<i64>>);

impl IndexBox {
    /// What both have; `None` where that is nothing.
    pub(crate) fn and(&self, other: &IndexBox) -> Option<IndexBox> {
        let both = self.0.iter().zip(&other.0);
        let both = both.map(|(a, b)| a.start.max(b.start)..a.end.min(b.end));
        let both = IndexBox(both.collect());
        both.0.iter().all(|range| range.start < range.end).then_some(both)
    }

    /// Boxes that share nothing and together have what this has and `other` has not.
    pub(crate) fn without(&self, other: &IndexBox) -> Vec<IndexBox> {
        let Some(inner) = self.and(other) else { return vec![self.clone()] };
        let (mut left, mut rest) = (self.clone(), Vec::new());
        for dim in 0..left.0.len() {
            let (all, cut) = (left.0[dim].clone(), inner.0[dim].clone());
            for beside in [all.start..cut.start, cut.end..all.end] {
                if beside.start < beside.end {
                    left.0[dim] = beside;
                    rest.push(left.clone());
                }
            }
            left.0[dim] = cut;
        }
        rest
    }
}

/// Takes `whole` from `sources`, the first of which that have something give it: which part comes from
/// which. `Err` with a part that none has.
pub(crate) fn gather(
    whole: &IndexBox,
    sources: impl IntoIterator<Item = (usize, IndexBox)>,
) -> Result<Vec<(usize, IndexBox)>, IndexBox> {
    let (mut missing, mut parts) = (vec![whole.clone()], Vec::new());
    for (source, has) in sources {
        let given = missing.iter().filter_map(|part| part.and(&has));
        parts.extend(given.map(|part| (source, part)));
        missing = missing.iter().flat_map(|part| part.without(&has)).collect();
        if missing.is_empty() {
            return Ok(parts);
        }
    }
    missing.pop().map_or(Ok(parts), Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn any_box() -> impl Strategy<Value = IndexBox> {
        let range = (-4_i64..4, 1_i64..5).prop_map(|(lo, extent)| lo..lo + extent);
        prop::collection::vec(range, 3).prop_map(IndexBox)
    }

    fn members(b: &IndexBox) -> Vec<[i64; 3]> {
        let [x, y, z] = [0, 1, 2].map(|dim| b.0[dim].clone());
        let rows = x.flat_map(|i| y.clone().map(move |j| (i, j)));
        rows.flat_map(|(i, j)| z.clone().map(move |k| [i, j, k])).collect()
    }

    proptest! {
        #[test]
        fn what_is_shared_and_what_is_left_are_all(a in any_box(), b in any_box()) {
            let mut seen: HashMap<[i64; 3], u32> = HashMap::new();
            for part in a.and(&b).into_iter().chain(a.without(&b)) {
                members(&part).into_iter().for_each(|at| *seen.entry(at).or_default() += 1);
            }
            prop_assert!(seen.values().all(|times| *times == 1));
            prop_assert_eq!(seen.len(), members(&a).len());
            prop_assert!(members(&a).iter().all(|at| seen.contains_key(at)));
            let inside = members(&b);
            prop_assert!(a.without(&b).iter().flat_map(members).all(|at| !inside.contains(&at)));
        }

        #[test]
        fn each_index_comes_from_the_first_that_has_it(
            whole in any_box(),
            sources in prop::collection::vec(any_box(), 0..6),
        ) {
            let all = sources.iter().cloned().enumerate();
            let first = |at: &[i64; 3]| sources.iter().position(|s| members(s).contains(at));
            match gather(&whole, all) {
                Ok(parts) => {
                    let count: usize = parts.iter().map(|(_, part)| members(part).len()).sum();
                    prop_assert_eq!(count, members(&whole).len());
                    for (source, part) in parts {
                        let right = |at: &[i64; 3]| first(at) == Some(source);
                        prop_assert!(members(&part).iter().all(right));
                    }
                }
                Err(missing) => {
                    prop_assert!(members(&missing).iter().all(|at| first(at).is_none()));
                    prop_assert!(missing.and(&whole).as_ref() == Some(&missing));
                }
            }
        }
    }
}
