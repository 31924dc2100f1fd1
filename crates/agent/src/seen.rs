//! Which events were taken in this process: a repeat is only acked again.

use std::collections::{HashSet, VecDeque};

/// So many events are remembered. Far more than a gateway hands over without seeing an ack.
const MOST: usize = 32_768;

/// The youngest events of this process, oldest forgotten first.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    set: HashSet<u64>,
    order: VecDeque<u64>,
}

impl Seen {
    /// Remembers `event`; `false` if it was known.
    pub(crate) fn add(&mut self, event: u64) -> bool {
        if !self.set.insert(event) {
            return false;
        }
        self.order.push_back(event);
        if self.order.len() > MOST
            && let Some(old) = self.order.pop_front()
        {
            self.set.remove(&old);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_the_youngest_only() {
        let mut seen = Seen::default();
        assert!(seen.add(7));
        assert!(!seen.add(7));
        for event in 100..100 + MOST as u64 {
            assert!(seen.add(event));
        }
        assert_eq!((seen.set.len(), seen.order.len()), (MOST, MOST));
        assert!(!seen.add(100 + MOST as u64 - 1));
        assert!(seen.add(7), "the oldest was forgotten");
    }
}
