//! In memory: for the simulation and the tests. Keeps every rule of the trait, survives nothing.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use protocol::{
    Millis,
    record::{Batch, DeviceNo, DeviceState, Loaded, Op, Pos, Row},
};

use crate::{Reader, Start, Store, StoreError, check_pos, renamed, unknown};

/// A store in memory. Clones share what is committed: a crash is to drop a clone (and whatever was not committed), a
/// restart to take another.
#[derive(Clone, Debug)]
pub struct Memory {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Clone, Debug)]
struct Inner {
    epoch: String,
    secret: [u8; 32],
    last: Pos,
    numbers: HashMap<String, DeviceNo>,
    devices: BTreeMap<DeviceNo, Device>,
    log: BTreeMap<Pos, Arc<Row>>,
}

#[derive(Clone, Debug)]
struct Device {
    id: String,
    state: Vec<u8>,
    wake: bool,
    /// Positions of its rows, rising.
    rows: Vec<Pos>,
}

impl Memory {
    /// An empty store with this name and secret.
    #[must_use]
    pub fn new(epoch: &str, secret: [u8; 32]) -> Self {
        Self {
            inner: Arc::new(Mutex::new(Inner {
                epoch: epoch.to_owned(),
                secret,
                last: 0,
                numbers: HashMap::new(),
                devices: BTreeMap::new(),
                log: BTreeMap::new(),
            })),
        }
    }

    /// A copy of what is committed now, which later commits do not change.
    #[must_use]
    pub fn snapshot(&self) -> Self {
        Self { inner: Arc::new(Mutex::new(self.lock().clone())) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Changes are made only after every check, so a panic of a holder leaves nothing half done.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Refuses what breaks a rule, before anything is changed.
    fn check(&self, batches: &[Batch]) -> Result<(), StoreError> {
        let mut last = self.last;
        let mut new: BTreeMap<DeviceNo, &str> = BTreeMap::new();
        let mut ids: HashMap<&str, DeviceNo> = HashMap::new();
        for batch in batches {
            for op in &batch.ops {
                let Op::Device { no, id, .. } = op else { continue };
                let known = new.get(no).copied().or(self.devices.get(no).map(|d| d.id.as_str()));
                let number = ids.get(id.as_str()).or(self.numbers.get(id)).copied();
                if known.is_some_and(|k| k != id) || number.is_some_and(|n| n != *no) {
                    return Err(renamed(*no));
                }
                new.insert(*no, id);
                ids.insert(id, *no);
            }
            for op in &batch.ops {
                let Op::Append(row) = op else { continue };
                check_pos(last, row.pos)?;
                if !new.contains_key(&row.device) && !self.devices.contains_key(&row.device) {
                    return Err(unknown(row.device));
                }
                last = row.pos;
            }
        }
        Ok(())
    }

    fn apply(&mut self, batch: &Batch) {
        for op in &batch.ops {
            if let Op::Device { no, id, state, wake } = op {
                let device = self.devices.entry(*no).or_insert_with(|| Device {
                    id: id.clone(),
                    state: Vec::new(),
                    wake: false,
                    rows: Vec::new(),
                });
                state.clone_into(&mut device.state);
                device.wake = *wake;
                if !self.numbers.contains_key(id) {
                    self.numbers.insert(id.clone(), *no);
                }
            }
        }
        for op in &batch.ops {
            if let Op::Append(row) = op {
                if let Some(device) = self.devices.get_mut(&row.device) {
                    device.rows.push(row.pos);
                }
                self.log.insert(row.pos, Arc::new(row.clone()));
                self.last = row.pos;
            }
        }
    }

    fn live_from(device: &Device) -> Result<Pos, StoreError> {
        let state = DeviceState::decode(&device.state).map_err(|e| StoreError::Invalid(e.to_string()))?;
        Ok(state.live_from.unwrap_or(Pos::MAX))
    }
}

impl Store for Memory {
    fn start(&mut self) -> Result<Start, StoreError> {
        let inner = self.lock();
        Ok(Start {
            epoch: inner.epoch.clone(),
            secret: inner.secret,
            next_pos: inner.last + 1,
            next_device: inner.devices.last_key_value().map_or(1, |(no, _)| no + 1),
            wake: inner.devices.values().filter(|d| d.wake).map(|d| d.id.clone()).collect(),
        })
    }

    fn commit(&mut self, batches: &[Batch]) -> Result<(), StoreError> {
        let mut inner = self.lock();
        inner.check(batches)?;
        for batch in batches {
            inner.apply(batch);
        }
        Ok(())
    }

    fn trim(&mut self, before: Millis, max: usize) -> Result<Vec<Row>, StoreError> {
        let mut inner = self.lock();
        let mut floor = Pos::MAX;
        for device in inner.devices.values().filter(|d| d.wake) {
            floor = floor.min(Inner::live_from(device)?);
        }
        let mut removed = Vec::new();
        while let Some(entry) = inner.log.first_entry() {
            if removed.len() >= max || entry.get().at >= before || *entry.key() >= floor {
                break;
            }
            removed.push(Arc::unwrap_or_clone(entry.remove()));
        }
        if let Some(end) = removed.last().map(|r| r.pos) {
            for device in inner.devices.values_mut() {
                let gone = device.rows.partition_point(|pos| *pos <= end);
                device.rows.drain(..gone);
            }
        }
        Ok(removed)
    }

    fn reader(&self) -> Result<Box<dyn Reader>, StoreError> {
        Ok(Box::new(self.clone()))
    }
}

impl Reader for Memory {
    fn load(&mut self, device: &str, since: Millis) -> Result<Option<Loaded>, StoreError> {
        let inner = self.lock();
        let Some((no, device)) = inner.numbers.get(device).and_then(|no| Some((*no, inner.devices.get(no)?)))
        else {
            return Ok(None);
        };
        let live_from = Inner::live_from(device)?;
        let rows = || device.rows.iter().filter_map(|pos| inner.log.get(pos));
        Ok(Some(Loaded {
            no,
            state: device.state.clone(),
            marks: rows()
                .rev()
                .filter(|r| r.at >= since && !r.mark.is_empty())
                .map(|r| (r.pos, r.at, r.mark.clone()))
                .collect(),
            live: rows().filter(|r| r.pos >= live_from).map(|r| Row::clone(r)).collect(),
        }))
    }

    fn read(&mut self, positions: &[Pos]) -> Result<Vec<Row>, StoreError> {
        let inner = self.lock();
        Ok(positions.iter().filter_map(|pos| inner.log.get(pos).map(|r| Row::clone(r))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{self, batch, device};

    #[test]
    fn conforms() {
        conformance::run(|| {
            let store = Memory::new("memory", [7; 32]);
            Box::new(move || Box::new(store.clone()))
        });
    }

    #[test]
    fn a_snapshot_stands_still() {
        let mut store = Memory::new("memory", [7; 32]);
        store.commit(&[batch(1, vec![device(1, None, true)])]).unwrap();
        let mut before = store.snapshot();
        store.commit(&[batch(2, vec![device(1, None, false)])]).unwrap();
        assert_eq!(before.start().unwrap().wake, ["d1"]);
        assert_eq!(store.start().unwrap().wake, Vec::<String>::new());
    }
}
