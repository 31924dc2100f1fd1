//! A plain client: what the checklist asks of a device and no more, directly on the transport, so that the load tool costs
//! little and the server sees exactly the frames that are measured.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use tokio::{net::TcpStream, sync::mpsc, time::timeout};
use wire::{In, Out, WireConfig};

use crate::{
    counted::{Counted, Counts},
    server::TOKEN,
};

/// Nothing that is waited for takes so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// One device.
#[derive(Debug)]
pub(crate) struct Plain {
    out: wire::Sender,
    frames: mpsc::UnboundedReceiver<String>,
    counts: Arc<Counts>,
}

impl Plain {
    /// Connects, says hello, and waits for `ready`, which is returned.
    pub(crate) async fn open(url: &str, id: &str, counts: Arc<Counts>) -> Result<(Self, Value)> {
        let address = url.strip_prefix("ws://").and_then(|rest| rest.split('/').next()).unwrap_or_default();
        let io = TcpStream::connect(address).await.context("a device cannot connect")?;
        io.set_nodelay(true)?;
        let io = Counted::new(io, Arc::clone(&counts));
        let socket = wire::connect_over(io, url, &[], WireConfig::client()).await?;
        let (out, outbound) = wire::queue();
        let (tx, frames) = mpsc::unbounded_channel();
        tokio::spawn(socket.run(outbound, move |event: In<'_>| {
            if let In::Text(text) = event {
                // Nobody listens once the device is done.
                let _ = tx.send(text.to_owned());
            }
            std::future::ready(())
        }));
        let mut device = Self { out, frames, counts };
        device.send(json!({ "t": "hello", "v": 1, "token": TOKEN, "device": { "id": id } }).to_string())?;
        let ready = device.frame().await.context("no ready")?;
        ensure!(ready["t"] == "ready" && ready["session"] == format!("mobile:{id}"), "not ready: {ready}");
        Ok((device, ready))
    }

    /// Sends a frame.
    pub(crate) fn send(&self, frame: String) -> Result<()> {
        self.counts.data_out.fetch_add(1, Ordering::Relaxed);
        if self.out.send(Out::Text(frame)).is_err() {
            bail!("the connection is gone");
        }
        Ok(())
    }

    /// The next frame as it came.
    pub(crate) async fn raw(&mut self) -> Result<String> {
        let frame = timeout(PATIENCE, self.frames.recv()).await.context("no frame came in time")?;
        frame.context("the server closed the connection")
    }

    /// The next frame.
    pub(crate) async fn frame(&mut self) -> Result<Value> {
        Ok(serde_json::from_str(&self.raw().await?)?)
    }
}
