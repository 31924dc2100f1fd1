//! A connection before and beside a session: the first frame, who comes in, frames that wait for `ready`.

use std::collections::VecDeque;

use protocol::{
    Millis,
    client::ClientFrame,
    limits,
    problem::Problem,
    server::{Capabilities, ErrorFrame, Limits, Ready, ReadyDevice, ServerFrame},
    words::Lang,
};
use session::{Credential, Identity, rate::Bucket};

use crate::io::{Origin, Settings};
use protocol::record::DeviceNo;

/// A frame as it came.
pub(crate) type Came = Result<ClientFrame, Problem>;

/// How far a connection is.
#[derive(Debug)]
pub(crate) enum Stage {
    /// The first frame is awaited.
    Hello { until: Millis },
    /// Its `hello` was accepted; `ready` is not written yet.
    Greeted(Box<Greeting>),
    /// A session is open.
    Open { device: DeviceNo },
    /// It only delivers.
    Sender,
    /// It is being closed; what comes is ignored.
    Closing,
}

/// What is needed until `ready`.
#[derive(Debug)]
pub(crate) struct Greeting {
    pub(crate) device: String,
    pub(crate) who: Identity,
    /// Frames that came before `ready`, and their bytes.
    pub(crate) early: VecDeque<Came>,
    pub(crate) bytes: usize,
}

/// A connection. Small: there may be very many that do nothing.
#[derive(Debug)]
pub(crate) struct Conn {
    /// Until its `hello` was looked at.
    pub(crate) origin: Option<Box<Origin>>,
    pub(crate) stage: Stage,
    /// Token of its accepted `hello`.
    pub(crate) credential: Option<Credential>,
    /// It may `deliver`.
    pub(crate) delivers: bool,
    pub(crate) lang: Lang,
    pub(crate) timer: Option<Millis>,
    /// Rate of its `deliver` frames; what belongs to a device is counted there.
    pub(crate) frames: Bucket,
    /// Bytes of answers that its socket has not taken, while it only delivers.
    pub(crate) unsent: usize,
    /// It was closed while its device was being loaded: what it sent before still counts.
    pub(crate) gone: bool,
    /// Rubbish in a row on a connection that only delivers.
    pub(crate) rubbish: u32,
}

impl Conn {
    pub(crate) fn new(origin: Origin, settings: &Settings, now: Millis) -> Self {
        Self {
            origin: Some(Box::new(origin)),
            stage: Stage::Hello { until: now + settings.hello_ms },
            credential: None,
            delivers: false,
            lang: settings.lang,
            timer: None,
            frames: Bucket::new(settings.frames_per_second, settings.frames_burst, now),
            unsent: 0,
            gone: false,
            rubbish: 0,
        }
    }

    pub(crate) const fn deadline(&self) -> Option<Millis> {
        match self.stage {
            Stage::Hello { until } => Some(until),
            _ => None,
        }
    }
}

/// An `error` frame.
pub(crate) fn error(problem: &Problem, fatal: bool, lang: Lang) -> ServerFrame {
    ServerFrame::Error(ErrorFrame {
        code: problem.code,
        message: problem.say.text(lang),
        fatal,
        id: problem.id.clone(),
        detail: Some(problem.detail.clone()),
        retry_after_ms: problem.retry_after_ms,
    })
}

/// `ready` for a device; for a connection that only delivers the id is empty.
pub(crate) fn ready(device: &str, name: Option<&str>, settings: &Settings) -> ServerFrame {
    ServerFrame::Ready(Box::new(Ready {
        v: 1,
        session: format!("mobile:{device}"),
        device: ReadyDevice { id: device.to_owned(), name: name.unwrap_or(device).to_owned() },
        avatar_url: settings.avatar_url.clone(),
        capabilities: Capabilities::default(),
        features: Vec::new(),
        limits: Some(Limits {
            frame_bytes: limits::FRAME_AFTER_READY as u64,
            frame_out_bytes: limits::FRAME_TO_DEVICE as u64,
            text_chars: limits::TEXT_CHARS as u64,
            caption_chars: limits::CAPTION_CHARS as u64,
            file_bytes: limits::FILE_BYTES as u64,
            parts: u64::from(limits::PARTS),
            series: limits::SERIES as u64,
            series_bytes: limits::SERIES_BYTES as u64,
            series_idle_ms: settings.series_idle_ms,
            chunk_chars: settings.chunk_chars as u64,
            frames_per_second: u64::from(settings.frames_per_second),
            bytes_per_second: settings.bytes_per_second,
        }),
    }))
}

#[cfg(test)]
mod tests {
    use super::Conn;
    use crate::device::Device;

    /// Each device that has connected since the start, and each connection, holds one of these.
    #[test]
    fn a_device_and_a_connection_stay_small() {
        assert!(size_of::<Device>() <= 1_472, "a device has {} bytes", size_of::<Device>());
        assert!(size_of::<Conn>() <= 256, "a connection has {} bytes", size_of::<Conn>());
    }
}
