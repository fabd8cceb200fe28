//! Things by index, and queues of them that any one can leave in the middle.

/// No index.
const NONE: u32 = u32::MAX;

/// Things by index, each in one [`Chain`] at most. An index is used again once its thing is gone.
#[derive(Debug)]
pub(crate) struct Arena<T> {
    entries: Vec<Entry<T>>,
    /// The first of the indices that are free, which are linked by `after`.
    free: u32,
}

#[derive(Debug)]
struct Entry<T> {
    value: Option<T>,
    before: u32,
    after: u32,
}

impl<T> Default for Arena<T> {
    fn default() -> Self {
        Arena { entries: Vec::new(), free: NONE }
    }
}

impl<T> Arena<T> {
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        let index = self.free;
        if index == NONE {
            self.entries.push(Entry { value: Some(value), before: NONE, after: NONE });
            return self.entries.len() as u32 - 1;
        }
        let entry = &mut self.entries[index as usize];
        self.free = entry.after;
        *entry = Entry { value: Some(value), before: NONE, after: NONE };
        index
    }

    /// Takes out what is in no chain.
    pub(crate) fn remove(&mut self, index: u32) -> T {
        let entry = &mut self.entries[index as usize];
        entry.after = self.free;
        self.free = index;
        entry.value.take().expect("an index of something")
    }

    pub(crate) fn get(&self, index: u32) -> &T {
        self.entries[index as usize].value.as_ref().expect("an index of something")
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> &mut T {
        self.entries[index as usize].value.as_mut().expect("an index of something")
    }

    /// All indices in use, and what is there.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..).zip(&self.entries).filter_map(|(i, entry)| Some((i, entry.value.as_ref()?)))
    }
}

/// A queue of things of one [`Arena`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Chain {
    first: u32,
    last: u32,
}

impl Default for Chain {
    fn default() -> Self {
        Chain { first: NONE, last: NONE }
    }
}

impl Chain {
    /// The index of the first, if there is one.
    pub(crate) fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    /// Adds what is in no chain, as the last.
    pub(crate) fn push<T>(&mut self, arena: &mut Arena<T>, index: u32) {
        let entry = &mut arena.entries[index as usize];
        (entry.before, entry.after) = (self.last, NONE);
        match self.last {
            NONE => self.first = index,
            last => arena.entries[last as usize].after = index,
        }
        self.last = index;
    }

    /// Takes out what is in this chain, wherever it stands.
    pub(crate) fn remove<T>(&mut self, arena: &mut Arena<T>, index: u32) {
        let Entry { before, after, .. } = arena.entries[index as usize];
        match before {
            NONE => self.first = after,
            before => arena.entries[before as usize].after = after,
        }
        match after {
            NONE => self.last = before,
            after => arena.entries[after as usize].before = before,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a vector: things come, leave from the front or the middle, and come back.
        #[test]
        fn a_chain_keeps_its_order(steps in prop::collection::vec((0_u8..4, any::<usize>()), 1..300)) {
            let (mut arena, mut chain) = (Arena::default(), Chain::default());
            let (mut chained, mut apart) = (Vec::<u32>::new(), Vec::<u32>::new());
            for (i, (what, which)) in steps.into_iter().enumerate() {
                match what {
                    0 => apart.push(arena.insert(i)),
                    1 if !apart.is_empty() => {
                        let index = apart.swap_remove(which % apart.len());
                        chain.push(&mut arena, index);
                        chained.push(index);
                    }
                    2 if !chained.is_empty() => {
                        let index = chained.remove(which % chained.len());
                        chain.remove(&mut arena, index);
                        apart.push(index);
                    }
                    3 if !apart.is_empty() => {
                        arena.remove(apart.swap_remove(which % apart.len()));
                    }
                    _ => {}
                }
                prop_assert_eq!(chain.first(), chained.first().copied());
                prop_assert_eq!(arena.iter().count(), chained.len() + apart.len());
            }
            for index in chained {
                prop_assert_eq!(chain.first(), Some(index));
                chain.remove(&mut arena, index);
            }
            prop_assert_eq!(chain, Chain::default());
        }
    }
}
