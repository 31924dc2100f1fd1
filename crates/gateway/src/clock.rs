//! The gateway's one clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use protocol::Millis;
use tokio::time::Instant;

/// The wall clock as it was at start, moved on by the monotonic clock: it never runs backwards, and a change of the
/// system's time while the gateway runs moves no deadline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    wall: Millis,
    start: Instant,
}

impl Clock {
    /// Starts now.
    pub(crate) fn start() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { wall: millis(wall), start: Instant::now() }
    }

    /// Milliseconds since the epoch.
    pub(crate) fn now(&self) -> Millis {
        self.wall.saturating_add(millis(self.start.elapsed()))
    }

    /// The instant at which [`Self::now`] will have reached `at`; at most a day ahead, which is as good as any
    /// longer sleep and cannot overflow.
    pub(crate) fn instant(&self, at: Millis) -> Instant {
        let ahead = at.saturating_sub(self.now()).min(86_400_000);
        Instant::now() + Duration::from_millis(ahead)
    }
}

fn millis(duration: Duration) -> Millis {
    Millis::try_from(duration.as_millis()).unwrap_or(Millis::MAX)
}
