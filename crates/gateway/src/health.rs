//! Whether the gateway can do its work, for `/readyz` and the log.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// So long after a failed commit `/readyz` says no. Then it says yes again, since only somebody who comes causes the next
/// commit, which tells.
const TRY_AGAIN: Duration = Duration::from_secs(60);

/// Shared by the hub, which knows, and the routes, which tell.
#[derive(Debug, Default)]
pub(crate) struct Health {
    started: AtomicBool,
    stopping: AtomicBool,
    /// Whether the last commit failed; checked first, since commits are frequent.
    failing: AtomicBool,
    /// When, and why.
    failed: Mutex<Option<(Instant, String)>>,
}

impl Health {
    /// The core runs.
    pub(crate) fn set_started(&self) {
        self.started.store(true, Ordering::Relaxed);
    }
    /// A stop has begun.
    pub(crate) fn set_stopping(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }
    /// A commit succeeded.
    pub(crate) fn store_works(&self) {
        if self.failing.swap(false, Ordering::Relaxed) {
            tracing::info!("the store works again");
        }
    }
    /// A commit failed. Logged once until one succeeds.
    pub(crate) fn store_fails(&self, reason: &str) {
        *self.failed.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((Instant::now(), reason.to_owned()));
        if !self.failing.swap(true, Ordering::Relaxed) {
            tracing::error!("nothing can be stored, so nothing is accepted: {reason}");
        }
    }
    /// `Ok` when work can be done, else why not, English.
    pub(crate) fn ready(&self) -> Result<(), String> {
        if !self.started.load(Ordering::Relaxed) {
            return Err("starting".to_owned());
        }
        if self.stopping.load(Ordering::Relaxed) {
            return Err("stopping".to_owned());
        }
        if self.failing.load(Ordering::Relaxed) {
            let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((_, why)) = failed.as_ref().filter(|(at, _)| at.elapsed() < TRY_AGAIN) {
                return Err(format!("nothing can be stored: {why}"));
            }
        }
        Ok(())
    }
}
