//! A list that is nearly always short, and then needs no allocation.

use std::hash::{Hash, Hasher};
use std::ops::{Deref, DerefMut};

/// Up to `N` items in place; more go to the heap.
#[derive(Debug, Clone)]
pub(crate) struct Short<T, const N: usize> {
    inline: [T; N],
    /// How many there are in place; 0 once `heap` holds them all.
    len: usize,
    heap: Vec<T>,
}

impl<T: Copy + Default, const N: usize> Short<T, N> {
    pub(crate) fn new() -> Self {
        Short { inline: [T::default(); N], len: 0, heap: Vec::new() }
    }

    pub(crate) fn push(&mut self, item: T) {
        if self.heap.is_empty() && self.len < N {
            self.inline[self.len] = item;
            self.len += 1;
            return;
        }
        if self.heap.is_empty() {
            self.heap.extend_from_slice(&self.inline[..self.len]);
            self.len = 0;
        }
        self.heap.push(item);
    }

    /// Takes out the item at `at`; those behind it move up.
    pub(crate) fn remove(&mut self, at: usize) {
        if self.heap.is_empty() {
            self.inline.copy_within(at + 1..self.len, at);
            self.len -= 1;
        } else {
            self.heap.remove(at);
        }
    }
}

impl<T, const N: usize> Deref for Short<T, N> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        if self.heap.is_empty() { &self.inline[..self.len] } else { &self.heap }
    }
}

impl<T, const N: usize> DerefMut for Short<T, N> {
    fn deref_mut(&mut self) -> &mut [T] {
        if self.heap.is_empty() { &mut self.inline[..self.len] } else { &mut self.heap }
    }
}

impl<T: Copy + Default, const N: usize> FromIterator<T> for Short<T, N> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let mut list = Short::new();
        items.into_iter().for_each(|item| list.push(item));
        list
    }
}

impl<T: PartialEq, const N: usize> PartialEq for Short<T, N> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Eq, const N: usize> Eq for Short<T, N> {}

impl<T: Hash, const N: usize> Hash for Short<T, N> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}
