//! Fills a state directory as months of talk would: `fill-store DIR ROWS [DEVICES]`.
//!
//! Every second row is a text of a device (`fill-1`, `fill-2` …), the next one its answer; all of them inside the last seven
//! days, so that every id is still remembered. Everything is answered and proven: nothing waits.

use std::{
    env,
    error::Error,
    path::Path,
    process::ExitCode,
    time::{SystemTime, UNIX_EPOCH},
};

use protocol::{
    limits::REMEMBER_MS,
    link::{DeviceInfo, User},
    record::{
        Batch, Body, DeviceNo, DeviceState, InBody, InRecord, Mark, MessageRecord, Op, Pos, Row, hash64,
        hash128,
    },
};
use store::{Sqlite, Store};

/// Rows in one commit.
const GROUP: u64 = 4_096;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let number = |at: usize| arguments.get(at).and_then(|a| a.parse::<u64>().ok());
    let (Some(dir), Some(rows)) = (arguments.first(), number(1)) else {
        eprintln!("usage: fill-store DIR ROWS [DEVICES]");
        return ExitCode::from(64);
    };
    match fill(Path::new(dir), rows, number(2).unwrap_or(1_000)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("fill-store: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn fill(dir: &Path, rows: u64, devices: u64) -> Result<(), Box<dyn Error>> {
    let mut store = Sqlite::open(&store::prepare(dir)?)?;
    let start = store.start()?;
    let now = u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?;
    let devices = u32::try_from(devices)?;
    let mut states: Vec<DeviceState> = (1..=devices).map(new_state).collect();
    let mut left = rows;
    let mut next: Pos = start.next_pos;
    for no in 1.. {
        let many = left.min(GROUP);
        if many == 0 {
            break;
        }
        let mut ops = Vec::new();
        let mut touched = Vec::new();
        for pos in next..next + many {
            // Question and answer belong to the same device.
            let index = usize::try_from((pos / 2) % u64::from(devices))?;
            let Some(state) = states.get_mut(index) else { continue };
            let device: DeviceNo = start.next_device + u32::try_from(index)?;
            // From the horizon (less an hour) to now.
            let at = now - (REMEMBER_MS - 3_600_000) * left.saturating_sub(pos - next) / rows.max(1);
            ops.push(Op::Append(row(pos, device, at, state)));
            touched.push(index);
        }
        touched.sort_unstable();
        touched.dedup();
        for index in touched {
            let Some(state) = states.get(index) else { continue };
            let no = start.next_device + u32::try_from(index)?;
            ops.push(Op::Device { no, id: state.info.id.clone(), state: state.encode(), wake: false });
        }
        store.commit(&[Batch { no, ops, lazy: false }])?;
        next += many;
        left -= many;
    }
    println!("{rows} rows of {devices} devices in {}", dir.display());
    Ok(())
}

fn new_state(number: u32) -> DeviceState {
    let info = DeviceInfo { id: format!("fill-{number}"), ..DeviceInfo::default() };
    DeviceState { info, ..DeviceState::default() }
}

/// A text at even positions, its answer at odd ones.
fn row(pos: Pos, device: DeviceNo, at: u64, state: &mut DeviceState) -> Row {
    let text = format!("What was said at {pos}, of about the length that people type into a chat.");
    let (mark, body) = if pos.is_multiple_of(2) {
        let id = format!("id-{pos}");
        let mark =
            Mark::In { id: hash128(&[b"in", id.as_bytes()]), content: hash64(&[b"text", text.as_bytes()]) };
        let user = User { id: state.info.id.clone(), ..User::default() };
        state.done = pos;
        (mark, Body::In(InRecord { id, user, what: InBody::Text { text } }))
    } else {
        let id = format!("m{pos:032x}");
        let mark = Mark::Out {
            id: hash128(&[b"out", id.as_bytes()]),
            content: hash64(&[b"text", text.as_bytes()]),
            once: false,
        };
        state.seq += 1;
        state.proven = state.seq;
        let message = MessageRecord {
            seq: state.seq,
            id,
            text: format!("You said: {text}"),
            reply_to: None,
            edit: false,
            once: false,
        };
        (mark, Body::Message(message))
    };
    Row { pos, device, at, mark: mark.encode(), body: body.encode() }
}
