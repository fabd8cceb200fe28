//! Layouts as sequences of small numbers, for the search.

use model::MAX_DIMS;

/// The most atoms of a word: units below [`SPLIT`], the inner halves of split units from there.
pub(crate) const MAX_ATOMS: usize = SPLIT as usize + MAX_DIMS;

/// The atom that is the inner half of dimension 0's split; the other dimensions' follow.
pub(crate) const SPLIT: u8 = 48;

/// A layout as a sequence of atoms, fastest first, each at most once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Word {
    len: u8,
    atoms: [u8; MAX_ATOMS],
}

impl PartialEq for Word {
    fn eq(&self, other: &Word) -> bool {
        self.atoms() == other.atoms()
    }
}

impl Word {
    pub(crate) const EMPTY: Word = Word { len: 0, atoms: [0; MAX_ATOMS] };

    pub(crate) fn atoms(&self) -> &[u8] {
        &self.atoms[..usize::from(self.len)]
    }

    pub(crate) fn push(&mut self, atom: u8) {
        self.atoms[usize::from(self.len)] = atom;
        self.len += 1;
    }

    /// Adds what `other` has and `self` has not, in the order of `other`.
    pub(crate) fn push_missing(&mut self, other: &Word) {
        let mut have = self.set();
        for &atom in other.atoms() {
            if have & (1 << atom) == 0 {
                self.push(atom);
                have |= 1 << atom;
            }
        }
    }

    /// The atoms as a set of bits.
    pub(crate) fn set(&self) -> u64 {
        set_of(self.atoms().iter())
    }

    /// The longest common prefix, as a set.
    pub(crate) fn common_prefix(&self, other: &Word) -> u64 {
        let pairs = self.atoms().iter().zip(other.atoms());
        set_of(pairs.take_while(|(a, b)| a == b).map(|(a, _)| a))
    }

    /// All that lies below the longest common suffix, as a set.
    pub(crate) fn below_suffix(&self, other: &Word) -> u64 {
        let pairs = self.atoms().iter().rev().zip(other.atoms().iter().rev());
        let same = pairs.take_while(|(a, b)| a == b).count();
        set_of(self.atoms()[..self.atoms().len() - same].iter())
    }
}

fn set_of<'a>(atoms: impl Iterator<Item = &'a u8>) -> u64 {
    atoms.fold(0, |set, &atom| set | 1 << atom)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(atoms: &[u8]) -> Word {
        let mut word = Word::EMPTY;
        atoms.iter().for_each(|&atom| word.push(atom));
        word
    }

    #[test]
    fn what_is_missing_comes_in_the_order_of_the_other() {
        let mut made = word(&[2, SPLIT]);
        made.push_missing(&word(&[3, 2, 0, SPLIT]));
        assert_eq!(made.atoms(), [2, SPLIT, 3, 0]);
    }

    #[test]
    fn a_word_holds_every_atom() {
        let every: Vec<u8> = (0..SPLIT + MAX_DIMS as u8).collect();
        assert_eq!(word(&every).atoms(), every);
        assert_eq!(word(&every).set().count_ones(), 56);
    }

    #[test]
    fn prefixes_and_suffixes_are_sets() {
        let (a, b) = (word(&[0, 1, 2, 3, 4]), word(&[0, 2, 1, 3, 4]));
        assert_eq!(a.common_prefix(&b), 0b1);
        assert_eq!(a.below_suffix(&b), 0b111);
        assert_eq!((a.common_prefix(&a), a.below_suffix(&a)), (0b1_1111, 0));
    }
}
