//! What the service manager is told: that the gateway listens, that it works, that it stops. Without systemd (no
//! `NOTIFY_SOCKET`) nothing is told to anybody.

use std::time::Duration;

use gateway::Probe;
use sd_notify::NotifyState;
use tokio::time::{MissedTickBehavior, interval};

/// Tells the service manager.
pub(crate) fn tell(state: NotifyState<'_>) {
    if let Err(e) = sd_notify::notify(&[state]) {
        tracing::warn!("the service manager cannot be told: {e}");
    }
}

/// Tells the watchdog that the gateway works as long as its hub and its store answer, twice in the time that the
/// service manager allows (`WatchdogSec=`). Returns at once if it has none.
pub(crate) async fn watch(probe: Probe) {
    let Some(allowed) = sd_notify::watchdog_enabled() else { return };
    let pause = (allowed / 2).max(Duration::from_millis(1));
    let mut ticks = interval(pause);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if probe.answers(pause).await {
            tell(NotifyState::Watchdog);
        } else {
            tracing::error!("the hub or the store does not answer: the watchdog is told nothing");
        }
    }
}
