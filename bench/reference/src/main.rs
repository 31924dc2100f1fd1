//! A bare echo server on tokio-websockets: the same frames as the gateway with its `echo` agent, and nothing else: no
//! store, no proof, no limits. `ref-tokio-websockets PORT` listens on 127.0.0.1 (0: any free port) and prints
//! `listening on http://ADDRESS`.
//!
//! Settings are what the library's documentation gives for many small messages: SIMD masks (always on), messages fed one
//! after the other while more can be read, and one flush for all of them.

use std::{
    borrow::Cow,
    env,
    io::Write,
    sync::atomic::{AtomicU64, Ordering},
};

use anyhow::{Context, Result, bail};
use futures_util::{FutureExt, SinkExt, StreamExt};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_websockets::{Config, Limits, Message, ServerBuilder};

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 4096;
/// Largest message, as the gateway has it after `ready`.
const LARGEST: usize = 16 * 1024 * 1024;

/// What a device sends, of whatever type: one pass and no copies.
#[derive(Deserialize)]
struct Incoming<'a> {
    #[serde(borrow)]
    t: Cow<'a, str>,
    #[serde(borrow)]
    text: Option<Cow<'a, str>>,
    #[serde(borrow)]
    ts: Option<&'a RawValue>,
    #[serde(borrow)]
    device: Option<Device<'a>>,
    #[serde(borrow)]
    token: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Device<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
}

/// `message`, in the gateway's order of fields.
#[derive(Serialize)]
struct Reply<'a> {
    t: &'a str,
    id: String,
    text: &'a str,
    chunk: Chunk,
    r#final: bool,
    seq: u64,
}

#[derive(Serialize)]
struct Chunk {
    index: u32,
    total: u32,
}

/// What `ready` says besides session and device; the same as the gateway without rate limits.
const READY: &str = concat!(
    r#""avatar_url":"","capabilities":{"text":true,"voice":true,"typing":true,"#,
    r#""avatar_states":["idle","thinking","speaking"],"media_in":["image","video","document","audio"],"#,
    r#""media_out":["image","voice","video","document","animation"],"#,
    r#""prompts":["exec_approval","slash_confirm","clarify"],"edit":true,"max_media_bytes":8388608,"#,
    r#""max_text_chars":12000},"limits":{"frame_bytes":16777216,"frame_out_bytes":983040,"text_chars":12000,"#,
    r#""caption_chars":4000,"file_bytes":8388608,"parts":2048,"series":8,"series_bytes":8388608,"#,
    r#""series_idle_ms":120000,"chunk_chars":2000,"frames_per_second":0,"bytes_per_second":0}}"#
);

static MESSAGES: AtomicU64 = AtomicU64::new(1);

#[tokio::main]
async fn main() -> Result<()> {
    let port: u16 =
        env::args().nth(1).unwrap_or_default().parse().context("usage: ref-tokio-websockets PORT")?;
    let token = env::var("MOBILE_TOKEN").context("MOBILE_TOKEN")?;
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(([127, 0, 0, 1], port).into())?;
    let listener: TcpListener = socket.listen(BACKLOG)?;
    let mut out = std::io::stdout();
    writeln!(out, "listening on http://{}", listener.local_addr()?)?;
    out.flush()?;
    loop {
        if let Ok((io, _)) = listener.accept().await {
            let token = token.clone();
            tokio::spawn(async move {
                // A connection that ends concerns nobody else.
                let _ = serve(io, &token).await;
            });
        }
    }
}

async fn serve(io: TcpStream, token: &str) -> Result<()> {
    io.set_nodelay(true)?;
    let (_, mut socket) = ServerBuilder::new()
        .config(Config::default().frame_size(usize::MAX))
        .limits(Limits::default().max_payload_len(Some(LARGEST)))
        .accept(io)
        .await?;
    let mut seq = 0;
    while let Some(message) = socket.next().await {
        let mut message = message?;
        // Everything that has come is answered before anything is flushed.
        loop {
            if let Some(text) = message.as_text()
                && let Some(answer) = answer(text, token, &mut seq)?
            {
                socket.feed(Message::text(answer)).await?;
            }
            match socket.next().now_or_never() {
                Some(Some(next)) => message = next?,
                Some(None) => return Ok(()),
                None => break,
            }
        }
        socket.flush().await?;
    }
    Ok(())
}

/// The answer to a frame.
fn answer(text: &str, expected: &str, seq: &mut u64) -> Result<Option<String>> {
    let frame: Incoming<'_> = serde_json::from_str(text)?;
    Ok(match (&*frame.t, frame.text, frame.ts, frame.device) {
        ("text", Some(text), ..) => {
            *seq += 1;
            let number = MESSAGES.fetch_add(1, Ordering::Relaxed);
            let chunk = Chunk { index: 0, total: 1 };
            let id = format!("m{number:032x}");
            let reply = Reply { t: "message", id, text: &text, chunk, r#final: true, seq: *seq };
            Some(serde_json::to_string(&reply)?)
        }
        ("ping", _, Some(ts), _) => Some(format!(r#"{{"t":"pong","ts":{ts}}}"#)),
        ("hello", .., Some(device)) => {
            if frame.token.as_deref() != Some(expected) {
                bail!("wrong token");
            }
            let id = serde_json::to_string(&device.id)?;
            let session = serde_json::to_string(&format!("mobile:{}", device.id))?;
            Some(format!(
                r#"{{"t":"ready","v":1,"session":{session},"device":{{"id":{id},"name":{id}}},{READY}"#
            ))
        }
        _ => None,
    })
}
