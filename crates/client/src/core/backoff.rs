//! Waits between two attempts: exponential, with full jitter and a cap.

/// How long to wait before the next attempt.
#[derive(Debug)]
pub struct Backoff {
    state: u64,
    attempts: u32,
    first_ms: u64,
    cap_ms: u64,
}

impl Backoff {
    /// `first_ms` is the ceiling of the first wait, `cap_ms` that of all. `seed` should differ between clients, so that they do not come back together.
    #[must_use]
    pub fn new(seed: u64, first_ms: u64, cap_ms: u64) -> Self {
        Self { state: seed, attempts: 0, first_ms, cap_ms }
    }
    /// Ceiling of the wait that [`Self::wait`] gives next.
    #[must_use]
    pub fn ceiling(&self) -> u64 {
        let doubled = 1u64.checked_shl(self.attempts).and_then(|n| self.first_ms.checked_mul(n));
        doubled.unwrap_or(self.cap_ms).min(self.cap_ms)
    }
    /// The next wait: anything from 0 to the ceiling, each as likely.
    pub fn wait(&mut self) -> u64 {
        let ceiling = self.ceiling();
        self.attempts = self.attempts.saturating_add(1);
        // The high half of the product is uniform enough for a wait and needs no loop.
        let product = u128::from(self.random()) * (u128::from(ceiling) + 1);
        u64::try_from(product >> 64).unwrap_or(ceiling)
    }
    /// Attempts since the last [`Self::reset`].
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.attempts
    }
    /// The connection was steady: the next wait is short again.
    pub fn reset(&mut self) {
        self.attempts = 0;
    }
    /// SplitMix64: enough for spreading, not for secrets.
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
