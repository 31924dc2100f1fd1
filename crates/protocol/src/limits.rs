//! Every limit of the protocol, with its unit and the rule it comes from (`docs/protocol.md`, Part A).

/// Largest message to the server before `ready`, bytes of the WebSocket payload.
pub const FRAME_BEFORE_READY: usize = 64 * 1024;
/// Largest message to the server after `ready`, bytes of the WebSocket payload.
pub const FRAME_AFTER_READY: usize = 16 * 1024 * 1024;
/// Largest frame to a device, bytes of encoded JSON (several client libraries refuse 1 MiB).
pub const FRAME_TO_DEVICE: usize = 960 * 1024;
/// What may wait between a `hello` and its `ready`, bytes of payload in all.
pub const PENDING_BEFORE_READY: usize = 64 * 1024;
/// Longest `id` of a frame, characters.
pub const ID_CHARS: usize = 128;
/// Longest `text`, Unicode scalar values.
pub const TEXT_CHARS: usize = 12_000;
/// Longest `caption` of media, characters.
pub const CAPTION_CHARS: usize = 4_000;
/// Longest `device.name`, `platform`, `app_version`, `user.name` kept, characters.
pub const LABEL_CHARS: usize = 200;
/// Most names in `hello.features`.
pub const FEATURES: usize = 64;
/// Longest card text and description, characters.
pub const CARD_TEXT_CHARS: usize = 12_000;
/// Longest `command` of a card, bytes of UTF-8.
pub const CARD_COMMAND_BYTES: usize = 64 * 1024;
/// Most choices of a `clarify` card.
pub const CLARIFY_CHOICES: usize = 20;
/// Default size of a chunk of a message, characters (`MOBILE_CHUNK_LIMIT`).
pub const CHUNK_CHARS: usize = 2_000;
/// A grapheme cluster longer than this may be cut between characters.
pub const CLUSTER_CHARS: usize = 16_000;
/// What one message id holds, bytes of encoded JSON.
pub const MESSAGE_BYTES: usize = 700_000;
/// Longest text an agent may send in one call, bytes of UTF-8.
pub const AGENT_TEXT_BYTES: usize = 1024 * 1024;
/// Largest file in either direction, decoded bytes.
pub const FILE_BYTES: usize = 8 * 1024 * 1024;
/// Size of a part of a file to a device, decoded bytes.
pub const PART_BYTES: usize = 700_000;
/// Most parts of one file to the server.
pub const PARTS: u32 = 2_048;
/// Most open series of a device.
pub const SERIES: usize = 8;
/// Most bytes in the open series of a device, decoded.
pub const SERIES_BYTES: usize = 8 * 1024 * 1024;
/// An open series that got no part for this long is dropped, milliseconds.
pub const SERIES_IDLE_MS: u64 = 120_000;
/// Longest file name kept, bytes of UTF-8.
pub const FILENAME_BYTES: usize = 200;
/// Largest `ts` of a `ping`, bytes of JSON.
pub const PING_BYTES: usize = 1024;
/// The first frame must come within this, milliseconds.
pub const HELLO_MS: u64 = 10_000;
/// So many bad frames in a row end a connection.
pub const BAD_FRAMES: u32 = 20;
/// Accepted ids, call keys and deliver ids are remembered so long, milliseconds.
pub const REMEMBER_MS: u64 = 7 * 24 * 3600 * 1000;
/// A text waits so long for an agent, milliseconds.
pub const WAIT_MS: u64 = 24 * 3600 * 1000;
/// An answered card must be taken by the agent within this, milliseconds.
pub const TAKE_MS: u64 = 5_000;
/// A `deliver` must be proven within this, milliseconds.
pub const DELIVER_MS: u64 = 10_000;
/// Closed cards still answer (`forbidden` to others, the same `prompt_done` to their device) so long, milliseconds.
pub const CARD_MEMORY_MS: u64 = 24 * 3600 * 1000;
