//! Files through the whole gateway, and what they may hold of its memory.

mod common;

use std::{fs, os::unix::fs::PermissionsExt};

use common::{Client, Got, config, start, stop};

/// Base64 without a library: whole groups of three equal bytes.
fn part(id: &str, part: usize, parts: usize, groups: usize) -> String {
    let data = "QUFB".repeat(groups);
    format!(
        r#"{{"t":"media","id":"{id}","kind":"document","mime":"text/plain","filename":"a.txt","data":"{data}","part":{part},"parts":{parts}}}"#
    )
}

#[tokio::test]
async fn the_largest_file_in_three_parts_arrives_and_is_kept_private() {
    let state = tempfile::tempdir().unwrap();
    let running = start(config(state.path())).await;
    let mut device = Client::device(running.address(), "d").await;
    // 3 * 932,067 * 3 = 8,388,603 bytes: the largest multiple of nine within 8 MiB.
    for number in 0..3 {
        device.send(part("big", number, 3, 932_067));
    }
    device.until(&["[document 8388603 bytes]", r#""final":true"#]).await;
    let media: Vec<_> = fs::read_dir(state.path().join("media")).unwrap().map(Result::unwrap).collect();
    assert_eq!(media.len(), 1);
    let kept = media[0].metadata().unwrap();
    assert_eq!((kept.len(), kept.permissions().mode() & 0o777), (8_388_603, 0o600));
    assert_eq!(fs::read_dir(state.path().join("spool")).unwrap().count(), 0, "the parts are gone");
    stop(running).await;
}

#[tokio::test]
async fn many_uploads_at_once_share_little_memory_and_all_arrive() {
    let state = tempfile::tempdir().unwrap();
    let mut settings = config(state.path());
    // The least that is allowed: one large frame at a time, more or less.
    settings.inflight_bytes = 16 * 1024 * 1024;
    let running = start(settings).await;
    let mut devices = Vec::new();
    for number in 0..8 {
        devices.push(Client::device(running.address(), &format!("d{number}")).await);
    }
    for number in 0..2 {
        for device in &devices {
            device.send(part("file", number, 2, 1_300_000));
        }
    }
    for device in &mut devices {
        device.until(&["[document 7800000 bytes]", r#""final":true"#]).await;
    }
    stop(running).await;
}

#[tokio::test]
async fn a_refused_part_lets_the_connection_go_on() {
    let state = tempfile::tempdir().unwrap();
    let running = start(config(state.path())).await;
    let mut device = Client::device(running.address(), "d").await;
    // Over 8 MiB with its second part: refused, and the bytes are not held.
    device.send(part("huge", 0, 2, 1_800_000));
    device.send(part("huge", 1, 2, 1_800_000));
    device.until(&["too_big", "huge"]).await;
    device.send(r#"{"t":"text","id":"1","text":"still here"}"#);
    loop {
        match device.next().await {
            Got::Text(text) if text.contains("still here") => break,
            Got::Text(_) => {}
            Got::Closed(code) => panic!("closed with {code:?}"),
        }
    }
    stop(running).await;
}
