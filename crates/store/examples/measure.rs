//! What the store costs on this machine: `cargo run --release -p hermes-mobile-store --example measure [ROWS]`.

use std::{error::Error, time::Instant};

use hermes_mobile_store::{Sqlite, Store};
use protocol::record::{Batch, DeviceNo, DeviceState, Mark, Op, Row};

fn state(no: DeviceNo, live_from: Option<u64>) -> Op {
    let state = DeviceState { live_from, ..DeviceState::default() }.encode();
    Op::Device { no, id: format!("d{no}"), state, wake: false }
}

fn row(pos: u64, device: DeviceNo) -> Op {
    let mark = Mark::In { id: u128::from(pos) << 64 | u128::from(!pos), content: pos }.encode();
    Op::Append(Row { pos, device, at: 1_796_000_000_000 + pos * 600, mark, body: vec![b'x'; 150] })
}

fn main() -> Result<(), Box<dyn Error>> {
    let rows: u64 = std::env::args().nth(1).map_or(Ok(1_000_000), |n| n.parse())?;
    let dir = tempfile::tempdir_in(std::env::current_dir()?)?;
    let mut store = Sqlite::open(dir.path())?;
    let mut pos = 0;
    let devices = (1..=1000).map(|no| state(no, None)).collect();
    store.commit(&[Batch { no: 0, ops: devices, lazy: false }])?;

    for group in [1, 64] {
        let began = Instant::now();
        let count = 3_200;
        for _ in 0..count / group {
            let batches: Vec<Batch> = (0..group)
                .map(|_| {
                    pos += 1;
                    let no = 100 + (pos % 64) as DeviceNo;
                    Batch { no: pos, ops: vec![row(pos, no), state(no, None)], lazy: false }
                })
                .collect();
            store.commit(&batches)?;
        }
        let each = began.elapsed().as_secs_f64() * 1e6 / count as f64;
        println!("commit in groups of {group}: {each:.1} us a row (with its device's state)");
    }

    for (no, rows) in [(1, rows / 1000), (2, rows / 10), (3, rows)] {
        let began = Instant::now();
        let mut left = rows;
        while left > 0 {
            let ops: Vec<Op> = (0..left.min(4096))
                .map(|_| {
                    pos += 1;
                    row(pos, no)
                })
                .collect();
            left -= ops.len() as u64;
            store.commit(&[Batch { no: pos, ops, lazy: false }])?;
        }
        store.commit(&[Batch { no: pos, ops: vec![state(no, Some(pos - 20))], lazy: false }])?;
        let fill = began.elapsed().as_secs_f64() * 1e6 / rows as f64;
        let mut reader = store.reader()?;
        let mut times = Vec::new();
        for _ in 0..3 {
            let began = Instant::now();
            let loaded = reader.load(&format!("d{no}"), 0)?.ok_or("not there")?;
            times.push(format!("{:.1} ms", began.elapsed().as_secs_f64() * 1e3));
            assert_eq!(loaded.marks.len() as u64, rows);
            assert_eq!(loaded.live.len(), 21);
        }
        println!(
            "load of a device with {rows} rows, all within the horizon: {} (written at {fill:.1} us a row)",
            times.join(", ")
        );
    }
    drop(store);
    let began = Instant::now();
    let mut store = Sqlite::open(dir.path())?;
    let start = store.start()?;
    println!("open with {} rows: {:.1} ms", start.next_pos - 1, began.elapsed().as_secs_f64() * 1e3);
    println!(
        "size: {:.0} bytes a row",
        std::fs::metadata(dir.path().join("store.db"))?.len() as f64 / pos as f64
    );
    let began = Instant::now();
    let mut gone = 0;
    for _ in 0..20 {
        gone += store.trim(u64::MAX, 500)?.len();
    }
    println!("trim in steps of 500: {:.1} us a row", began.elapsed().as_secs_f64() * 1e6 / gone as f64);
    Ok(())
}
