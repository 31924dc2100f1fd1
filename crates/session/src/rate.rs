//! How often: frames of a device, wrong logins of an address.

use std::collections::HashMap;

use protocol::Millis;

/// A token bucket. A rate of 0 lets everything pass.
#[derive(Debug, Clone)]
pub struct Bucket {
    per_second: u32,
    burst: u32,
    /// In thousandths of a token.
    level: u64,
    at: Millis,
}

impl Bucket {
    /// A full bucket.
    #[must_use]
    pub fn new(per_second: u32, burst: u32, now: Millis) -> Self {
        Self { per_second, burst, level: u64::from(burst) * 1000, at: now }
    }

    /// Takes one token.
    ///
    /// # Errors
    /// Milliseconds until the next one.
    pub fn take(&mut self, now: Millis) -> Result<(), u64> {
        if self.per_second == 0 {
            return Ok(());
        }
        let gained = now.saturating_sub(self.at).saturating_mul(u64::from(self.per_second));
        self.level = self.level.saturating_add(gained).min(u64::from(self.burst.max(1)) * 1000);
        self.at = self.at.max(now);
        if self.level >= 1000 {
            self.level -= 1000;
            Ok(())
        } else {
            Err((1000 - self.level).div_ceil(u64::from(self.per_second)).max(1))
        }
    }
}

/// Most addresses of which wrong logins are counted; past that the oldest is forgotten, so that nobody can fill memory.
const ADDRESSES: usize = 10_000;

/// Wrong logins by address. Only wrong ones count.
#[derive(Debug)]
pub struct Logins {
    after: u32,
    lockout_ms: u64,
    wrong: HashMap<String, (u32, Millis)>,
}

impl Logins {
    /// `after` wrong logins within `lockout_ms` lock an address out for `lockout_ms`; 0: never.
    #[must_use]
    pub fn new(after: u32, lockout_ms: u64) -> Self {
        Self { after, lockout_ms, wrong: HashMap::new() }
    }

    /// Milliseconds for which the address is still locked out.
    #[must_use]
    pub fn locked(&self, address: &str, now: Millis) -> Option<u64> {
        let (count, at) = self.wrong.get(address)?;
        let until = at.saturating_add(self.lockout_ms);
        (self.after > 0 && *count >= self.after && now < until).then(|| until - now)
    }

    /// Counts a wrong login.
    pub fn count(&mut self, address: &str, now: Millis) {
        if self.after == 0 {
            return;
        }
        if self.wrong.len() >= ADDRESSES && !self.wrong.contains_key(address) {
            let oldest = self.wrong.iter().min_by_key(|(_, (_, at))| *at).map(|(address, _)| address.clone());
            if let Some(oldest) = oldest {
                self.wrong.remove(&oldest);
            }
        }
        let entry = self.wrong.entry(address.to_owned()).or_insert((0, now));
        if now >= entry.1.saturating_add(self.lockout_ms) {
            entry.0 = 0;
        }
        entry.0 = entry.0.saturating_add(1);
        entry.1 = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_gives_its_burst_then_its_rate() {
        let mut bucket = Bucket::new(10, 3, 1000);
        assert!((0..3).all(|_| bucket.take(1000).is_ok()));
        assert_eq!(bucket.take(1000), Err(100));
        assert_eq!(bucket.take(1050), Err(50));
        assert_eq!(bucket.take(1100), Ok(()));
        assert_eq!(Bucket::new(0, 0, 0).take(5), Ok(()));
    }

    #[test]
    fn an_address_is_locked_out_after_so_many_and_let_in_again() {
        let mut logins = Logins::new(3, 1000);
        logins.count("a", 0);
        logins.count("a", 1);
        assert_eq!(logins.locked("a", 2), None);
        logins.count("a", 2);
        assert_eq!(logins.locked("a", 2), Some(1000));
        assert_eq!(logins.locked("b", 2), None, "another address is untouched");
        assert_eq!(logins.locked("a", 1002), None);
        logins.count("a", 1002);
        assert_eq!(logins.locked("a", 1003), None, "the count starts anew");
    }

    #[test]
    fn memory_is_bounded() {
        let mut logins = Logins::new(1, 1000);
        for number in 0..(ADDRESSES as u64 + 50) {
            logins.count(&number.to_string(), number);
        }
        assert!(logins.wrong.len() <= ADDRESSES);
        assert!(logins.locked(&(ADDRESSES + 49).to_string(), ADDRESSES as u64 + 50).is_some());
    }
}
