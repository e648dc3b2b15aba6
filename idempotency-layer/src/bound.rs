//! How much of something a layer holds at once: taken if there is room, given back by dropping, never waited for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A limit, and how much of it is taken.
#[derive(Debug)]
pub(crate) struct Bound {
    taken: AtomicUsize,
    limit: usize,
}

impl Bound {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { taken: AtomicUsize::new(0), limit })
    }

    /// Takes so much, if there is room for it.
    pub(crate) fn take(self: &Arc<Self>, amount: usize) -> Option<Share> {
        self.reserve(amount).then(|| Share { bound: Arc::clone(self), amount })
    }

    fn reserve(&self, amount: usize) -> bool {
        let add = |taken: usize| taken.checked_add(amount).filter(|taken| *taken <= self.limit);
        self.taken.fetch_update(Ordering::AcqRel, Ordering::Relaxed, add).is_ok()
    }
}

/// What was taken of a [`Bound`]; dropped, it is given back.
#[derive(Debug)]
pub(crate) struct Share {
    bound: Arc<Bound>,
    amount: usize,
}

impl Share {
    /// Takes so much more, if there is room for it.
    pub(crate) fn grow(&mut self, amount: usize) -> bool {
        let grown = self.bound.reserve(amount);
        self.amount += if grown { amount } else { 0 };
        grown
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.bound.taken.fetch_sub(self.amount, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails when `take` or `grow` lets one too many in, when a refusal keeps what it did not get, and when a share gives
    /// back more or less than it took.
    #[test]
    fn no_more_is_taken_than_there_is_and_all_of_it_comes_back() {
        let bound = Bound::new(3);
        let mut share = bound.take(1).expect("room for one");
        assert!(bound.take(3).is_none());
        assert!(share.grow(1) && !share.grow(2) && !share.grow(usize::MAX));
        let last = bound.take(1).expect("room for one more");
        assert!(bound.take(1).is_none() && bound.take(0).is_some());
        drop((share, last));
        assert!(bound.take(4).is_none());
        assert!(bound.take(3).is_some());
    }
}
