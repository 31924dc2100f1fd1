//! What must be remembered for some days: ids that were accepted, ids that were given out.

use std::collections::VecDeque;

use protocol::Millis;

use crate::Map;

const DAY: Millis = 24 * 3600 * 1000;

/// A set of hashes with a small value each, forgotten by whole days: 24 bytes an entry and no list beside it.
#[derive(Debug, Default)]
pub struct Remembered {
    days: VecDeque<(Millis, Map<u128, u64>)>,
}

impl Remembered {
    /// The value of `key`, if it is remembered.
    #[must_use]
    pub fn get(&self, key: u128) -> Option<u64> {
        self.days.iter().rev().find_map(|(_, day)| day.get(&key).copied())
    }

    /// Remembers `key` from `at` on; a later value takes the place of an earlier one.
    pub fn put(&mut self, key: u128, value: u64, at: Millis) {
        let day = at / DAY;
        let index = match self.days.binary_search_by_key(&day, |(d, _)| *d) {
            Ok(index) => index,
            Err(index) => {
                self.days.insert(index, (day, Map::default()));
                index
            }
        };
        if let Some((_, entries)) = self.days.get_mut(index) {
            entries.insert(key, value);
        }
    }

    /// Remembers `key` if nothing later is known of it.
    pub fn put_older(&mut self, key: u128, value: u64, at: Millis) {
        if self.get(key).is_none() {
            self.put(key, value, at);
        }
    }

    /// Forgets `key`: it was never accepted.
    pub fn forget(&mut self, key: u128) {
        for (_, day) in &mut self.days {
            day.remove(&key);
        }
    }

    /// Drops the days that lie wholly before `horizon`.
    pub fn trim(&mut self, horizon: Millis) {
        while self.days.front().is_some_and(|(day, _)| (day + 1) * DAY <= horizon) {
            self.days.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_what_is_young_and_drops_whole_days() {
        let mut remembered = Remembered::default();
        remembered.put(1, 10, 5);
        remembered.put(2, 20, DAY * 3);
        remembered.put(3, 30, DAY);
        assert_eq!((remembered.get(1), remembered.get(2), remembered.get(3)), (Some(10), Some(20), Some(30)));
        remembered.trim(DAY * 2);
        assert_eq!((remembered.get(1), remembered.get(2), remembered.get(3)), (None, Some(20), None));
        remembered.forget(2);
        assert_eq!(remembered.get(2), None);
    }

    #[test]
    fn nothing_is_dropped_before_it_is_old_enough() {
        let mut remembered = Remembered::default();
        remembered.put(7, 1, DAY - 1);
        remembered.trim(DAY - 1);
        assert_eq!(remembered.get(7), Some(1), "its day is not wholly before the horizon");
    }
}
