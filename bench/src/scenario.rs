//! What is measured. Each function measures one server once, and fails if anything that came back was wrong.

use std::{
    fs,
    future::Future,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use client::{
    core::{Config, Device, Event, FileKind},
    net::{self, Events, Session},
};
use serde::Deserialize;
use serde_json::json;
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{
    counted::Counts,
    fleet::Fleet,
    plain::{PATIENCE, Plain},
    server::{Programs, Server, Setup, TOKEN},
};

/// A figure and its value.
pub(crate) type Values = Vec<(&'static str, f64)>;

/// The gateway pings so often in the idle measurement, so that it is measured after it has spoken to every device.
pub(crate) const IDLE_PING: Duration = Duration::from_secs(5);
/// Idle memory is read so long after the last device came; a small fleet comes and is pinged sooner.
const SETTLE: Duration = Duration::from_secs(8);
const SETTLE_FEW: Duration = Duration::from_secs(2);
const FEW: usize = 1_000;
/// A decimal gigabyte.
const GB: f64 = 1e9;

#[expect(clippy::cast_precision_loss, reason = "counts of a bench are far below 2^52")]
const fn float(number: u64) -> f64 {
    number as f64
}

/// Memory of devices that do nothing.
pub(crate) async fn idle(programs: &Programs, setup: &Setup, devices: usize) -> Result<Values> {
    let server = Server::start(programs, setup, 0)?;
    sleep(Duration::from_secs(1)).await;
    let empty = server.anonymous_bytes()?;
    let fleet = Fleet::connect(&server.url(), devices).await?;
    sleep(if devices < FEW { SETTLE_FEW } else { SETTLE }).await;
    let full = server.anonymous_bytes()?;
    fleet.check(0)?;
    // They are all still there, each under its own name.
    fleet.say().await?;
    fleet.check(0)?;
    let said = server.anonymous_bytes()?;
    fleet.close().await;
    let each = |bytes: u64| float(bytes.saturating_sub(empty)) / float(devices as u64);
    Ok(vec![
        ("bytes a device", each(full)),
        ("bytes a device after one text", each(said)),
        ("empty server, MiB", float(empty) / 1_048_576.0),
    ])
}

/// The reply to a text.
#[derive(Deserialize)]
struct Reply {
    t: String,
    #[serde(default)]
    text: String,
    #[serde(default)]
    r#final: bool,
}

/// Texts and their echoes: every device sends the next one when the last came back.
pub(crate) async fn chat(programs: &Programs, setup: &Setup, devices: usize, texts: usize) -> Result<Values> {
    let server = Server::start(programs, setup, 0)?;
    let counts = Arc::new(Counts::default());
    let mut fleet = Vec::with_capacity(devices);
    for number in 0..devices {
        fleet.push(Plain::open(&server.url(), &format!("chat-{number}"), Arc::clone(&counts)).await?.0);
    }
    // What is made once is made before the clock starts.
    let fleet = round(fleet, "warm", 2).await?;
    let (before, cpu, began) = (counts.now(), server.cpu_seconds()?, Instant::now());
    round(fleet, "text", texts).await?;
    let (wall, cpu, after) = (began.elapsed(), server.cpu_seconds()? - cpu, counts.now());
    let messages = float((devices * texts) as u64);
    let each = |at: usize| match (before.get(at), after.get(at)) {
        (Some(before), Some(after)) => float(after - before) / messages,
        _ => f64::NAN,
    };
    ensure!(cpu > 0.0, "too short to be measured");
    Ok(vec![
        ("CPU a message, µs", cpu * 1e6 / messages),
        ("messages a second", messages / wall.as_secs_f64()),
        ("frames to the server a message", each(3)),
        ("frames to the device a message", each(1)),
        ("pings to the device a message", each(2)),
        ("bytes to the device a message", each(0)),
    ])
}

/// Every device sends so many texts, one after the other's echo.
async fn round(fleet: Vec<Plain>, word: &'static str, texts: usize) -> Result<Vec<Plain>> {
    let mut running = JoinSet::new();
    for (number, mut device) in fleet.into_iter().enumerate() {
        running.spawn(async move {
            for count in 0..texts {
                let text = format!(
                    "{word} {count} of device {number}, about as long as what people type into a chat"
                );
                device.send(
                    json!({ "t": "text", "id": format!("{word}-{count}"), "text": text }).to_string(),
                )?;
                let raw = device.raw().await?;
                let reply: Reply = serde_json::from_str(&raw)?;
                ensure!(
                    reply.t == "message" && reply.r#final && reply.text == text,
                    "not the echo of {text:?}: {raw}"
                );
            }
            anyhow::Ok(device)
        });
    }
    let mut back = Vec::with_capacity(running.len());
    while let Some(done) = running.join_next().await {
        back.push(done??);
    }
    Ok(back)
}

/// A streamed reply to a plain client.
pub(crate) async fn stream(programs: &Programs, setup: &Setup, chars: usize) -> Result<Values> {
    // A person reads while it is written: about 200 characters a second.
    let frames = chars / 10;
    let server = Server::start(programs, setup, 0)?;
    let counts = Arc::new(Counts::default());
    let (mut device, _) = Plain::open(&server.url(), "stream", Arc::clone(&counts)).await?;
    let before = counts.now();
    device.send(
        json!({ "t": "text", "id": "s", "text": format!("!stream {chars} {frames} 50") }).to_string(),
    )?;
    let whole: String = ('a'..='z').cycle().take(chars).collect();
    let mut edits = 0_u64;
    loop {
        let raw = device.raw().await?;
        let reply: Reply = serde_json::from_str(&raw)?;
        ensure!(reply.t == "message" && whole.starts_with(&reply.text), "not a part of the reply: {raw}");
        edits += 1;
        if reply.r#final {
            ensure!(reply.text == whole, "the final text has {} characters, not {chars}", reply.text.len());
            break;
        }
    }
    let after = counts.now();
    Ok(vec![
        ("bytes a character", float(after[0] - before[0]) / float(chars as u64)),
        ("frames", float(edits)),
    ])
}

/// All devices come back after the server was killed and started again.
pub(crate) async fn storm(programs: &Programs, setup: &Setup, devices: usize) -> Result<Values> {
    let mut server = Server::start(programs, setup, 0)?;
    let fleet = Fleet::connect(&server.url(), devices).await?;
    let port = server.port();
    server.kill()?;
    let cut = Instant::now();
    let server = Server::start(programs, setup, port)?;
    let up = cut.elapsed();
    let (most, all) = fleet.again(cut, Duration::from_secs(180)).await?;
    let cpu = server.cpu_seconds()?;
    fleet.check(devices)?;
    fleet.say().await?;
    fleet.close().await;
    Ok(vec![
        ("99 % ready again, s", most),
        ("all ready again, s", all),
        ("server listening again, s", up.as_secs_f64()),
        ("CPU a device, µs", cpu * 1e6 / float(devices as u64)),
    ])
}

/// Files to the server.
pub(crate) async fn upload(programs: &Programs, setup: &Setup, files: usize, bytes: usize) -> Result<Values> {
    let server = Server::start(programs, setup, 0)?;
    let (session, mut events) = media_device(&server).await?;
    let contents: Vec<Vec<u8>> = (0..files).map(|number| content(number, bytes)).collect();
    let cpu = server.cpu_seconds()?;
    for (number, content) in contents.iter().enumerate() {
        let caption = format!("file {number}");
        let kind = FileKind::Document;
        session
            .send_file(kind, "application/octet-stream", "file.bin", Some(caption.clone()), content.clone())
            .await?;
        let expected = format!("{caption} [document {bytes} bytes]");
        until(&mut events, |event| match event {
            Event::Message(message) if message.text == expected => Ok(Some(())),
            Event::Message(message) => bail!("not the reply to a file: {}", message.text),
            _ => Ok(None),
        })
        .await?;
    }
    let cpu = server.cpu_seconds()? - cpu;
    session.close().await;
    drop(server);
    check_kept(&setup.state.join("media"), contents)?;
    Ok(vec![("CPU a GB in, s", cpu * GB / float((files * bytes) as u64))])
}

/// Files from the server. That the echo agent makes them and the gateway keeps them counts here.
pub(crate) async fn download(
    programs: &Programs,
    setup: &Setup,
    files: usize,
    bytes: usize,
) -> Result<Values> {
    let server = Server::start(programs, setup, 0)?;
    let (session, mut events) = media_device(&server).await?;
    let cpu = server.cpu_seconds()?;
    for _ in 0..files {
        session.send_text(format!("!file {bytes}")).await?;
        let file = until(&mut events, |event| match event {
            Event::Media(file) => Ok(Some(file.bytes)),
            _ => Ok(None),
        })
        .await?;
        let right = file.iter().zip((0..251_u8).cycle()).all(|(is, expected)| *is == expected);
        ensure!(file.len() == bytes && right, "a file of {} bytes came damaged", file.len());
    }
    let cpu = server.cpu_seconds()? - cpu;
    session.close().await;
    Ok(vec![("CPU a GB out, s", cpu * GB / float((files * bytes) as u64))])
}

async fn media_device(server: &Server) -> Result<(Session, Events)> {
    let mut config = Config::new(net::seed()?);
    config.token = Some(TOKEN.to_owned());
    config.device = Some(Device { id: "media".to_owned(), name: None, platform: None, app_version: None });
    let (session, mut events) = net::start(config, &server.url())?;
    until(&mut events, |event| Ok(matches!(event, Event::Ready(_)).then_some(()))).await?;
    Ok((session, events))
}

/// Waits for an event; what must never come is an error.
async fn until<T>(events: &mut Events, mut found: impl FnMut(Event) -> Result<Option<T>>) -> Result<T> {
    let wait = async {
        while let Some(event) = events.next().await {
            match event {
                Event::Offline { .. }
                | Event::Refused { .. }
                | Event::Failed { .. }
                | Event::Error(_)
                | Event::Damaged(_) => {
                    bail!("went wrong: {event:?}");
                }
                event => {
                    if let Some(found) = found(event)? {
                        return Ok(found);
                    }
                }
            }
        }
        bail!("the client has ended");
    };
    timeout(PATIENCE, wait).await.context("not in time")?
}

/// A file like no other.
fn content(number: usize, bytes: usize) -> Vec<u8> {
    // Of no known type, whatever the number.
    let mut bytes_of = vec![0xff, 0xfe, 0x00];
    let mut state = number as u64 + 1;
    while bytes_of.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes_of.extend(state.to_le_bytes());
    }
    bytes_of.truncate(bytes);
    bytes_of
}

/// The files in a folder are exactly these.
fn check_kept(folder: &Path, mut expected: Vec<Vec<u8>>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut kept = entries.map(|entry| Ok(fs::read(entry?.path())?)).collect::<Result<Vec<_>>>()?;
    kept.sort();
    expected.sort();
    ensure!(kept == expected, "the files that the server keeps are not those that were sent");
    Ok(())
}

/// The reference servers answer with the same frames as the gateway: the same fields and values, but for ids.
pub(crate) async fn frames(programs: &Programs, setup: &Setup) -> Result<Vec<serde_json::Value>> {
    let server = Server::start(programs, setup, 0)?;
    let (mut device, ready) = Plain::open(&server.url(), "frames", Arc::default()).await?;
    let mut frames = vec![ready];
    for frame in [
        json!({ "t": "text", "id": "1", "text": "Hello" }),
        json!({ "t": "ping", "ts": { "a": 1 } }),
        json!({ "t": "text", "id": "2", "text": "Привет \"ещё\" \n \u{1}" }),
    ] {
        device.send(frame.to_string())?;
        let mut answer = device.frame().await?;
        if let Some(id) = answer.get_mut("id").filter(|_| frame["t"] == "text") {
            ensure!(id.as_str().is_some_and(|id| id.len() == 33), "an id of another length: {id}");
            *id = json!("an id");
        }
        frames.push(answer);
    }
    Ok(frames)
}

/// Runs a measurement and says which one failed.
pub(crate) async fn named<T>(what: &str, run: impl Future<Output = Result<T>>) -> Result<T> {
    run.await.with_context(|| format!("{what} failed"))
}
