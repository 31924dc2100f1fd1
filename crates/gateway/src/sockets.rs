//! How many sockets this process may hold: the limit is raised to what the system allows, and near it newcomers are
//! refused in words rather than by a failing `accept`.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors kept for everything that is no client socket: store, media files, logs, the listener.
const RESERVE: usize = 64;

/// Raises the soft limit of open descriptors to the hard one, and says how many there are now.
pub(crate) fn raise_descriptor_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let wanted = Rlimit { current: limit.maximum, maximum: limit.maximum };
        if let Err(e) = setrlimit(Resource::Nofile, wanted) {
            tracing::warn!("the limit of open files cannot be raised: {e}");
        }
    }
    getrlimit(Resource::Nofile).current.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX))
}

/// Counts client sockets against a limit.
#[derive(Debug)]
pub(crate) struct Sockets {
    open: AtomicUsize,
    limit: usize,
    /// Whether the refusal was logged since the count last fell well below the limit.
    told: AtomicBool,
}

/// One counted socket; counts until it is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Counted(#[allow(dead_code, reason = "held for its Drop")] Arc<Guard>);

#[derive(Debug)]
struct Guard(Arc<Sockets>);

impl Drop for Guard {
    fn drop(&mut self) {
        let left = self.0.open.fetch_sub(1, Ordering::Relaxed).saturating_sub(1);
        if left < self.0.limit - self.0.limit / 10 {
            self.0.told.store(false, Ordering::Relaxed);
        }
    }
}

impl Sockets {
    /// With so many descriptors in all.
    pub(crate) fn new(descriptors: usize) -> Arc<Self> {
        // Even with a tiny limit somebody must get in.
        let limit = descriptors.saturating_sub(RESERVE).max(8);
        Arc::new(Self { open: AtomicUsize::new(0), limit, told: AtomicBool::new(false) })
    }

    /// Counts one more, or says that there is no room.
    pub(crate) fn take(self: &Arc<Self>) -> Option<Counted> {
        let before = self.open.fetch_add(1, Ordering::Relaxed);
        let counted = Counted(Arc::new(Guard(Arc::clone(self))));
        if before < self.limit {
            return Some(counted);
        }
        if !self.told.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "{before} connections are open and the limit of open files allows no more: new ones are refused (503). Raise it (ulimit -n, LimitNOFILE=)"
            );
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_at_the_limit_and_takes_again_below_it() {
        let sockets = Sockets::new(RESERVE + 10);
        let mut held: Vec<_> = (0..10).map(|_| sockets.take().unwrap()).collect();
        assert!(sockets.take().is_none());
        assert!(sockets.told.load(Ordering::Relaxed), "logged");
        assert_eq!(sockets.open.load(Ordering::Relaxed), 10, "a refused one is not counted");
        let twin = held[0].clone();
        held.remove(0);
        assert!(sockets.take().is_none(), "still held by the twin");
        drop(twin);
        assert!(sockets.take().is_some());
        held.clear();
        assert!(!sockets.told.load(Ordering::Relaxed), "would be logged again");
        assert_eq!(sockets.open.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn the_soft_limit_is_raised_to_the_hard_one() {
        let now = raise_descriptor_limit();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
        assert_eq!(limit.current.map_or(usize::MAX, |n| n as usize), now);
    }
}
