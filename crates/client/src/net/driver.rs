//! Moves frames, time and calls between the socket, the core and the app.

use std::{collections::VecDeque, time::Duration};

use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::{Instant, sleep_until, timeout},
};
use wire::{ConnectError, In, Out, WireConfig};

use super::Call;
use crate::core::{Action, Client, Event, Input, SubmitError};

/// Frames that may wait between the socket and the driver.
const FRAMES: usize = 32;
/// With so many events waiting for the app, nothing more is read.
const BACKLOG: usize = 64;
/// A close frame is given so long.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);
/// When nothing is due.
const FAR: Duration = Duration::from_secs(3600);

/// From the task of a connection.
enum FromWire {
    Input(Input),
    /// Payload bytes that were written.
    Drained(usize),
    TooLong,
}

/// A connection, or the attempt to open one.
struct Conn {
    out: wire::Sender,
    inbound: mpsc::Receiver<FromWire>,
    task: JoinHandle<()>,
    /// Lengths of the frames that were handed over and are not written.
    handed: VecDeque<usize>,
    drained: usize,
}

impl Conn {
    fn open(address: String) -> Self {
        let (out, out_rx) = wire::queue();
        let (tx, inbound) = mpsc::channel(FRAMES);
        let task = tokio::spawn(async move {
            let socket = match wire::connect(&address, &[], WireConfig::client()).await {
                Ok(socket) => socket,
                Err(error) => {
                    let status =
                        if let ConnectError::Refused(status) = &error { Some(*status) } else { None };
                    let detail = error.to_string();
                    // Nobody listens if the attempt was given up.
                    let _ = tx.send(FromWire::Input(Input::ConnectFailed { status, detail })).await;
                    return;
                }
            };
            let _ = tx.send(FromWire::Input(Input::Opened)).await;
            let inbound = move |event: In<'_>| {
                let event = match event {
                    In::Text(text) => FromWire::Input(Input::Frame(text.to_owned())),
                    In::Binary(_) | In::Pong(_) => FromWire::Input(Input::Alive),
                    In::TooLong(_) => FromWire::TooLong,
                    In::Drained(bytes) => FromWire::Drained(bytes),
                    In::Closed { code, .. } => FromWire::Input(Input::Closed { code }),
                };
                let tx = tx.clone();
                async move {
                    let _ = tx.send(event).await;
                }
            };
            socket.run(out_rx, inbound).await;
        });
        Self { out, inbound, task, handed: VecDeque::new(), drained: 0 }
    }

    /// The inputs that a report of the wire means.
    fn inputs(&mut self, event: FromWire) -> Vec<Input> {
        match event {
            FromWire::Input(input) => vec![input],
            FromWire::TooLong => {
                let _ = self.out.send(Out::Close(1009));
                vec![]
            }
            FromWire::Drained(bytes) => {
                self.drained += bytes;
                let mut sent = vec![];
                while let Some(first) = self.handed.front().copied().filter(|first| *first <= self.drained) {
                    self.drained -= first;
                    self.handed.pop_front();
                    sent.push(Input::Sent);
                }
                sent
            }
        }
    }
}

/// Waits for the end of a connection that was told to close; its task goes on by itself if that takes longer.
async fn farewell(mut conn: Conn) {
    let closed = async {
        while let Some(event) = conn.inbound.recv().await {
            if matches!(event, FromWire::Input(Input::Closed { .. })) {
                return;
            }
        }
    };
    // After this the close frame is written, or the line is too slow to wait for.
    let _ = timeout(CLOSE_WITHIN, closed).await;
}

struct Driver {
    client: Client,
    address: String,
    start: Instant,
    conn: Option<Conn>,
    /// Connections that are closing.
    farewells: Vec<JoinHandle<()>>,
    /// Events for the app.
    backlog: VecDeque<Event>,
}

impl Driver {
    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn handle(&mut self, input: Input) {
        let mut out = vec![];
        self.client.handle(input, self.now(), &mut out);
        self.carry_out(out);
    }

    fn carry_out(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Connect => self.conn = Some(Conn::open(self.address.clone())),
                Action::Send(text) => {
                    if let Some(conn) = &mut self.conn {
                        conn.handed.push_back(text.len());
                        // A connection that is gone reports that itself.
                        let _ = conn.out.send(Out::Text(text));
                    }
                }
                Action::Close(code) => {
                    if let Some(conn) = self.conn.take() {
                        let _ = conn.out.send(Out::Close(code));
                        self.farewells.retain(|f| !f.is_finished());
                        self.farewells.push(tokio::spawn(farewell(conn)));
                    }
                }
                Action::Drop => {
                    if let Some(conn) = self.conn.take() {
                        conn.task.abort();
                    }
                }
                Action::Tell(event) => self.backlog.push_back(event),
            }
        }
    }

    async fn close(&mut self, done: Option<oneshot::Sender<()>>) {
        self.handle(Input::Stop);
        for farewell in self.farewells.drain(..) {
            let _ = farewell.await;
        }
        if let Some(done) = done {
            let _ = done.send(());
        }
    }
}

/// The next report of the connection; pending while there is none, or while the app is behind.
async fn report(conn: Option<&mut Conn>, behind: bool) -> FromWire {
    match conn {
        Some(conn) if !behind => match conn.inbound.recv().await {
            Some(event) => event,
            // The task ended without a last word.
            None => FromWire::Input(Input::Closed { code: None }),
        },
        _ => std::future::pending().await,
    }
}

/// Runs a client until it is closed or nobody holds it.
pub(super) async fn run(
    client: Client,
    address: String,
    mut calls: mpsc::Receiver<Call>,
    events: mpsc::Sender<Event>,
) {
    let mut driver = Driver {
        client,
        address,
        start: Instant::now(),
        conn: None,
        farewells: vec![],
        backlog: VecDeque::new(),
    };
    driver.handle(Input::Start);
    let mut held = true;
    loop {
        let wake = driver
            .client
            .deadline()
            .map_or_else(|| Instant::now() + FAR, |at| driver.start + Duration::from_millis(at));
        let behind = driver.backlog.len() >= BACKLOG;
        tokio::select! {
            call = calls.recv(), if held => match call {
                Some(Call::Submit { request, id, done }) => {
                    let mut out = vec![];
                    let now = driver.now();
                    let result: Result<String, SubmitError> = driver.client.submit(request, id, now, &mut out);
                    driver.carry_out(out);
                    let _ = done.send(result);
                }
                Some(Call::Unsettled { done }) => drop(done.send(driver.client.unsettled())),
                Some(Call::Input(input)) => driver.handle(input),
                Some(Call::Close { done }) => {
                    driver.close(Some(done)).await;
                    break;
                }
                // The app only listens now; it may do so for as long as it likes.
                None => held = false,
            },
            permit = events.reserve(), if !driver.backlog.is_empty() => match permit {
                Ok(permit) => {
                    if let Some(event) = driver.backlog.pop_front() {
                        permit.send(event);
                    }
                }
                // Nobody listens any more: what is still to be sent by a handle goes on.
                Err(_) if held => driver.backlog.clear(),
                Err(_) => {
                    driver.close(None).await;
                    break;
                }
            },
            event = report(driver.conn.as_mut(), behind) => {
                let inputs = driver.conn.as_mut().map(|conn| conn.inputs(event)).unwrap_or_default();
                for input in inputs {
                    let ends = matches!(input, Input::Closed { .. } | Input::ConnectFailed { .. });
                    if ends {
                        driver.conn = None;
                    }
                    driver.handle(input);
                }
            }
            () = events.closed(), if !held => {
                driver.close(None).await;
                break;
            }
            () = sleep_until(wake) => driver.handle(Input::Tick),
        }
    }
    // What was said last reaches an app that still listens.
    for event in driver.backlog {
        if events.send(event).await.is_err() {
            break;
        }
    }
}
