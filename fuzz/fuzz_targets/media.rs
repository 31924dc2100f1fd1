//! Media assembly: lines of `audio` and `media` frames into the series table, checked against a plain model of the spools.
//! A line `t N` lets N milliseconds pass. The whole input is also a base64 text and bytes to encode.
#![no_main]

use std::collections::{BTreeMap, HashMap};

use libfuzzer_sys::fuzz_target;
use protocol::{
    base64,
    client::{self, ClientFrame},
    limits,
    series::{SeriesTable, SpoolNo, Step},
};

fuzz_target!(|data: &[u8]| {
    assert_eq!(
        base64::decode(&base64::encode(data), false, data.len()).ok(),
        (!data.is_empty()).then(|| data.to_vec())
    );
    let text = String::from_utf8_lossy(data);
    for first in [true, false] {
        let bound = data.len() / 2;
        if let Ok(bytes) = base64::decode(&text, first, bound) {
            assert!(!bytes.is_empty() && bytes.len() <= bound);
        }
    }

    let mut table = SeriesTable::new();
    let mut spools: HashMap<SpoolNo, BTreeMap<u32, usize>> = HashMap::new();
    let mut now = 0;
    for (next, line) in (1..).zip(text.lines()) {
        let mut discard = Vec::new();
        if let Some(ms) = line.strip_prefix("t ") {
            now += ms.trim().parse::<u32>().map_or(0, u64::from);
            for problem in table.expire(limits::SERIES_IDLE_MS, now, &mut discard) {
                assert!(problem.id.is_some(), "an idle series ends without saying which");
            }
        } else {
            match client::decode(line) {
                Ok(ClientFrame::Media(part)) if part.id.is_some() => {
                    let step = table.part(&part, next, now, &mut discard);
                    // A series that starts anew throws its old spool away before the part is kept.
                    for spool in discard.drain(..) {
                        assert!(spools.remove(&spool).is_some(), "an unknown spool is thrown away");
                    }
                    match step {
                        Ok(Step::Keep { spool }) => {
                            let parts = spools.entry(spool).or_default();
                            assert!(
                                parts.insert(part.part, part.data.len()).is_none(),
                                "a part is kept twice"
                            );
                        }
                        Ok(Step::Complete { spool, head, bytes }) => {
                            let mut parts = spools.remove(&spool).unwrap_or_default();
                            assert!(
                                parts.insert(part.part, part.data.len()).is_none(),
                                "a part is kept twice"
                            );
                            assert_eq!(parts.len(), head.parts as usize, "complete with holes");
                            assert_eq!(parts.values().sum::<usize>() as u64, bytes);
                            assert!(bytes <= limits::FILE_BYTES as u64);
                        }
                        Ok(Step::Ignore) => {}
                        Err(problem) => assert_eq!(problem.ends_series, part.id),
                    }
                }
                Err(problem) => {
                    if let Some(id) = problem.ends_series {
                        table.end(&id, now, &mut discard);
                    }
                }
                Ok(_) => {}
            }
        }
        for spool in discard {
            assert!(spools.remove(&spool).is_some(), "an unknown spool is thrown away");
        }
        let held = spools.values().flat_map(BTreeMap::values).sum::<usize>();
        assert_eq!(table.bytes(), held as u64, "the table counts something else than what is kept");
        assert!(held <= limits::SERIES_BYTES && spools.len() <= limits::SERIES, "over the limits");
        assert!(!table.is_empty() || spools.is_empty());
        assert!(
            spools.is_empty() || table.deadline(limits::SERIES_IDLE_MS).is_some(),
            "an open series that never ends"
        );
    }
});
