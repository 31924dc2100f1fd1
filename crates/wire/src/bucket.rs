//! A byte rate with a burst, as one point in time (GCRA).

use std::time::Duration;

use tokio::time::Instant;

/// Says until when reading has to wait.
#[derive(Debug)]
pub(crate) struct Bucket {
    /// Bytes a second; never 0.
    rate: u64,
    /// What the burst is worth in time.
    slack: Duration,
    /// When everything taken so far would have come at exactly the rate.
    due: Instant,
}

impl Bucket {
    /// `None` without a rate.
    pub(crate) fn new(rate: u64, burst: u64, now: Instant) -> Option<Self> {
        (rate > 0).then(|| Self { rate, slack: time(burst.max(crate::BURST), rate), due: now })
    }

    /// `bytes` were read.
    pub(crate) fn took(&mut self, bytes: u64, now: Instant) {
        self.due = self.due.max(now) + time(bytes, self.rate);
    }

    /// When the next read may be; `None`: now.
    pub(crate) fn wait(&self, now: Instant) -> Option<Instant> {
        self.due.checked_sub(self.slack).filter(|at| *at > now)
    }
}

/// Time that `bytes` take at `rate`. At most a day, so that no sum with it overflows.
fn time(bytes: u64, rate: u64) -> Duration {
    let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX).min(86_400_000_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_then_the_rate_holds() {
        let start = Instant::now() + Duration::from_secs(3600);
        let mut bucket = Bucket::new(1 << 20, 0, start).into_iter();
        let mut bucket = bucket.next().unwrap_or_else(|| unreachable!());
        bucket.took(16 << 20, start);
        assert_eq!(bucket.wait(start), None, "the whole burst passes");
        bucket.took(3 << 20, start);
        assert_eq!(bucket.wait(start), Some(start + Duration::from_secs(3)));
        assert_eq!(bucket.wait(start + Duration::from_secs(3)), None);
        assert!(Bucket::new(0, 1, start).is_none());
    }
}
