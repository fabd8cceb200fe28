use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

thread_local! {
    /// How many sections this thread is in; a handler runs in one.
    static SECTIONS: Cell<u32> = const { Cell::new(0) };
}

/// Whether this thread may run no handlers now.
pub(crate) fn is_held() -> bool {
    SECTIONS.get() > 0
}

/// Whether a handler holds others off besides: those of replies, which may run while it replies.
pub(crate) fn is_held_twice() -> bool {
    SECTIONS.get() > 1
}

/// While this lives, its thread runs no handlers (GASNet's no-interrupt section): it polls in vain, and
/// may do no more than a handler. Other threads, such as a [`Service`](crate::Service)'s, still run them.
#[derive(Debug)]
#[must_use = "handlers are held off while this lives"]
pub struct NoInterrupt {
    // It does not leave its thread.
    _here: PhantomData<*const ()>,
}

impl NoInterrupt {
    /// Begins a section. One may begin in another, and end in any order.
    pub fn begin() -> NoInterrupt {
        SECTIONS.set(SECTIONS.get() + 1);
        NoInterrupt { _here: PhantomData }
    }
}

impl Drop for NoInterrupt {
    fn drop(&mut self) {
        SECTIONS.set(SECTIONS.get() - 1);
    }
}

/// What handlers and others share (GASNet's handler-safe lock): whoever holds it runs no handlers, so
/// that none waits for the thread that it runs on. A handler gives it back before it replies.
#[derive(Default)]
pub struct HandlerSafe<T> {
    value: Mutex<T>,
}

/// The right to what a [`HandlerSafe`] holds, until dropped; it does not leave its thread.
#[derive(Debug)]
pub struct HandlerSafeGuard<'a, T> {
    value: MutexGuard<'a, T>,
    // Dropped after the lock, so that no handler runs while that is held.
    _section: NoInterrupt,
}

impl<T> HandlerSafe<T> {
    /// Holds `value`.
    pub const fn new(value: T) -> HandlerSafe<T> {
        HandlerSafe { value: Mutex::new(value) }
    }

    /// Waits until nobody else has it. It is taken too after a holder has panicked.
    ///
    /// This thread must not hold it already.
    pub fn lock(&self) -> HandlerSafeGuard<'_, T> {
        let section = NoInterrupt::begin();
        let value = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        HandlerSafeGuard { value, _section: section }
    }
}

impl<T> fmt::Debug for HandlerSafe<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerSafe").finish_non_exhaustive()
    }
}

impl<T> Deref for HandlerSafeGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for HandlerSafeGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}
