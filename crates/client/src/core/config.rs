//! How a client is set up.

use protocol::limits;

/// Largest `retry_after_ms` that is obeyed, milliseconds: a damaged server cannot put a client to sleep for ever.
pub const RETRY_AFTER_CAP_MS: u64 = 10 * 60 * 1000;

/// The device that says hello.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// `device.id`: [`protocol::id::valid_device_id`] says what is allowed.
    pub id: String,
    /// Name to show.
    pub name: Option<String>,
    /// For instance `cli`.
    pub platform: Option<String>,
    /// Version of the app.
    pub app_version: Option<String>,
}

/// The person, `hello.user`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// `user.id`, under the same rule as `device.id`.
    pub id: Option<String>,
    /// A label.
    pub name: Option<String>,
}

/// How a client is set up. Durations in milliseconds, sizes in bytes.
#[derive(Clone)]
pub struct Config {
    /// `hello.token`.
    pub token: Option<String>,
    /// The device; `None` for a connection that only delivers.
    pub device: Option<Device>,
    /// The person.
    pub user: Option<User>,
    /// `hello.lang`, a tag such as `en`.
    pub lang: Option<String>,
    /// Fresh randomness for ids and for the jitter of the back-off: new for every process.
    pub seed: [u8; 32],
    /// From the wish to connect to an open WebSocket.
    pub connect_ms: u64,
    /// From `hello` to `ready`.
    pub ready_ms: u64,
    /// Ceiling of the first wait between two attempts; it doubles with each further one.
    pub backoff_ms: u64,
    /// Ceiling of every wait between two attempts.
    pub backoff_cap_ms: u64,
    /// A connection that was ready for so long makes the next wait short again.
    pub steady_ms: u64,
    /// After so long without a sign of life from the server a `ping` asks whether it is there; 0: never.
    pub quiet_ms: u64,
    /// No sign of life for so long: the connection is dead. 0: the transport watches for that itself (it sees bytes, the core only what the driver reports).
    pub silent_ms: u64,
    /// What was accepted is kept so long: a drop within it sends it again (the server knows the id), and an error that comes late is still about it.
    pub keep_ms: u64,
    /// `typing` without `ttl_ms` ends by itself.
    pub typing_ms: u64,
    /// An avatar state other than idle ends by itself.
    pub avatar_ms: u64,
    /// A refusal that asks for a later try (`rate_limited`, `internal`) is obeyed so often for one item.
    pub tries: u32,
    /// Most items that wait or are in flight.
    pub outbox_items: usize,
    /// Most bytes in them.
    pub outbox_bytes: usize,
    /// Most items in flight.
    pub window: usize,
    /// Size of a part of a file to the server, decoded. 3 MB at most: the frame limit is 16 MiB, and smaller parts leave room for a card's answer between two of them.
    pub part_bytes: usize,
    /// Largest file from the server, decoded.
    pub file_bytes: usize,
}

impl Config {
    /// The usual settings.
    #[must_use]
    pub fn new(seed: [u8; 32]) -> Self {
        Self {
            token: None,
            device: None,
            user: None,
            lang: None,
            seed,
            connect_ms: 15_000,
            ready_ms: 15_000,
            backoff_ms: 500,
            backoff_cap_ms: 30_000,
            steady_ms: 10_000,
            quiet_ms: 30_000,
            silent_ms: 75_000,
            keep_ms: 10_000,
            typing_ms: 30_000,
            avatar_ms: 300_000,
            tries: 10,
            outbox_items: 1_000,
            outbox_bytes: 64 * 1024 * 1024,
            window: 16,
            part_bytes: 1_000_000,
            file_bytes: 4 * limits::FILE_BYTES,
        }
    }
}

impl std::fmt::Debug for Config {
    /// Without the token and the seed.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("device", &self.device)
            .field("lang", &self.lang)
            .finish_non_exhaustive()
    }
}
