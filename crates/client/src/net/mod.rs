//! The client on tokio: an async handle and a stream of events.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use hermes_mobile_client::{core::{Config, Device, Event}, net};
//! let mut config = Config::new(net::seed()?);
//! config.device = Some(Device { id: "my-phone".into(), name: None, platform: None, app_version: None });
//! config.token = Some("…".into());
//! let (session, mut events) = net::start(config, "ws://127.0.0.1:8787/ws")?;
//! session.send_text("Hello").await?;
//! while let Some(event) = events.next().await {
//!     if let Event::Message(message) = event {
//!         println!("{}", message.text);
//!     }
//! }
//! # Ok(())
//! # }
//! ```

mod driver;

use tokio::sync::{mpsc, oneshot};

use crate::{
    core::{Client, Config, Event, FileKind, Input, Request, SubmitError},
    url::{self, UrlError},
};

/// So many events may wait for the app before nothing more is read from the server.
const EVENTS: usize = 64;
/// So many calls may wait.
const CALLS: usize = 16;

/// Why a client cannot be started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// The address cannot be used.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// `wss://` is not built in.
    #[error("wss:// (TLS) is not supported by this build; use ws://, or a tunnel that ends TLS")]
    NoTls,
    /// The system gives no randomness.
    #[error("the system gives no random numbers")]
    NoRandom,
}

/// Fresh randomness for [`Config::new`].
///
/// # Errors
/// [`StartError::NoRandom`].
pub fn seed() -> Result<[u8; 32], StartError> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|_| StartError::NoRandom)?;
    Ok(seed)
}

/// Starts a client and lets it connect. Runs until [`Session::close`], or until both handles are dropped. Needs a tokio runtime with
/// time and I/O; `address` may be what a person types ([`url::websocket`]).
///
/// The transport sends pings and watches for silence, so the core's own heart beat is off.
///
/// # Errors
/// [`StartError`]: nothing was started.
pub fn start(mut config: Config, address: &str) -> Result<(Session, Events), StartError> {
    let address = url::websocket(address)?;
    if address.starts_with("wss:") {
        return Err(StartError::NoTls);
    }
    config.quiet_ms = 0;
    config.silent_ms = 0;
    let (calls, calls_in) = mpsc::channel(CALLS);
    let (events_out, events) = mpsc::channel(EVENTS);
    tokio::spawn(driver::run(Client::new(config), address, calls_in, events_out));
    Ok((Session { calls }, Events { events }))
}

/// A call of the app.
enum Call {
    Submit { request: Request, id: Option<String>, done: oneshot::Sender<Result<String, SubmitError>> },
    Unsettled { done: oneshot::Sender<usize> },
    Input(Input),
    Close { done: oneshot::Sender<()> },
}

/// The handle of a running client. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Session {
    calls: mpsc::Sender<Call>,
}

impl Session {
    /// Takes something to be sent, under the caller's own id or a new one. Returns as soon as it is in the outbox; what becomes of it is
    /// told by [`Event::Accepted`], [`Event::Failed`], [`Event::Delivered`] or [`Event::CardDone`].
    ///
    /// # Errors
    /// [`SubmitError`]: it was not taken.
    pub async fn submit(&self, request: Request, id: Option<String>) -> Result<String, SubmitError> {
        let (done, answer) = oneshot::channel();
        self.calls.send(Call::Submit { request, id, done }).await.map_err(|_| SubmitError::Ended)?;
        answer.await.unwrap_or(Err(SubmitError::Ended))
    }
    /// Sends a text.
    ///
    /// # Errors
    /// As [`Self::submit`].
    pub async fn send_text(&self, text: impl Into<String>) -> Result<String, SubmitError> {
        self.submit(Request::Text(text.into()), None).await
    }
    /// Sends a file.
    ///
    /// # Errors
    /// As [`Self::submit`].
    pub async fn send_file(
        &self,
        kind: FileKind,
        mime: impl Into<String>,
        filename: impl Into<String>,
        caption: Option<String>,
        bytes: Vec<u8>,
    ) -> Result<String, SubmitError> {
        let request = Request::File { kind, mime: mime.into(), filename: filename.into(), caption, bytes };
        self.submit(request, None).await
    }
    /// Answers a card.
    ///
    /// # Errors
    /// As [`Self::submit`].
    pub async fn answer(
        &self,
        prompt_id: impl Into<String>,
        option_id: impl Into<String>,
        text: Option<String>,
    ) -> Result<String, SubmitError> {
        let request = Request::Answer { prompt_id: prompt_id.into(), option_id: option_id.into(), text };
        self.submit(request, None).await
    }
    /// Sends a message to another device; `queue`: store it if the device is away.
    ///
    /// # Errors
    /// As [`Self::submit`].
    pub async fn deliver(
        &self,
        target: impl Into<String>,
        text: impl Into<String>,
        queue: bool,
    ) -> Result<String, SubmitError> {
        self.submit(Request::Deliver { target: target.into(), text: text.into(), queue }, None).await
    }
    /// How many items wait, or have neither proof nor result.
    pub async fn unsettled(&self) -> usize {
        let (done, answer) = oneshot::channel();
        if self.calls.send(Call::Unsettled { done }).await.is_err() {
            return 0;
        }
        answer.await.unwrap_or(0)
    }
    /// Tries to connect now instead of at the end of the wait; also starts anew after [`Event::Refused`].
    pub async fn connect_now(&self) {
        // A client that has ended tells so by the end of its events.
        let _ = self.calls.send(Call::Input(Input::Start)).await;
    }
    /// Ends the client. Returns when the close frame is written, or after two seconds.
    pub async fn close(&self) {
        let (done, closed) = oneshot::channel();
        if self.calls.send(Call::Close { done }).await.is_ok() {
            let _ = closed.await;
        }
    }
}

/// What the app learns, in order.
#[derive(Debug)]
pub struct Events {
    events: mpsc::Receiver<Event>,
}

impl Events {
    /// The next event; `None` when the client has ended. Cancel safe.
    pub async fn next(&mut self) -> Option<Event> {
        self.events.recv().await
    }
}
