//! Frame headers of the raw stream, read before the library sees them: how long a message gets, where a frame ends.

/// A message longer than this leaves a large buffer behind, bytes; it is given back at the message's end.
const LARGE: u64 = 64 * 1024;

/// What may be passed on of a piece of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// All.
    All,
    /// Only so many bytes: the header behind them announces a message that is too long. The rest was scanned too.
    TooLong(usize),
    /// So many bytes end a large message. The rest was not scanned.
    Large(usize),
}

/// Where in the stream of frames we are.
#[derive(Debug)]
pub(crate) struct Scan {
    /// We are the server: frames must be masked.
    server: bool,
    /// Largest message, bytes of payload.
    limit: u64,
    /// The first bytes of a header, up to and with its length.
    head: [u8; 10],
    /// How many of them are here; 0 at the border of two frames.
    have: usize,
    /// Bytes up to the end of the frame (mask and payload).
    left: u64,
    /// First byte of the frame that is under way.
    first: u8,
    /// A fragmented message is under way.
    open: bool,
    /// Payload of the data message that is under way.
    message: u64,
    /// Empty fragments of it: a message that never ends and never grows is too long as well.
    empty: u64,
    /// A header that the library will refuse: it judges, we look no further.
    fault: bool,
    /// Only looks for the end; nothing is too long any more.
    discard: bool,
    /// Length of the message that was too long.
    too_long: Option<u64>,
    /// A close frame has come, whole.
    closed: bool,
}

impl Scan {
    pub(crate) fn new(server: bool, limit: usize) -> Self {
        Self {
            server,
            limit: limit as u64,
            head: [0; 10],
            have: 0,
            left: 0,
            first: 0,
            open: false,
            message: 0,
            empty: 0,
            fault: false,
            discard: false,
            too_long: None,
            closed: false,
        }
    }

    /// From the next header on.
    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit = limit as u64;
    }

    /// No message is read any more.
    pub(crate) fn discard(&mut self) {
        self.discard = true;
    }

    /// Length so far of the message that was too long.
    pub(crate) fn too_long(&self) -> Option<u64> {
        self.too_long
    }

    /// A close frame has come.
    pub(crate) fn closed(&self) -> bool {
        self.closed
    }

    /// Between two messages: everything passed on is whole.
    pub(crate) fn at_border(&self) -> bool {
        self.have == 0 && self.left == 0 && !self.open && !self.fault && self.too_long.is_none()
    }

    /// The next piece of the stream.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Pass {
        let mut pass = Pass::All;
        let mut at = 0;
        // Where the header that is being read starts in this piece; one that started earlier: 0.
        let mut start = 0;
        while !self.fault && at < bytes.len() {
            if self.left > 0 {
                let rest = (bytes.len() - at) as u64;
                let step = self.left.min(rest);
                self.left -= step;
                at += usize::try_from(step).unwrap_or(bytes.len());
            } else {
                if self.have == 0 {
                    start = at;
                }
                let (Some(byte), Some(place)) = (bytes.get(at), self.head.get_mut(self.have)) else { break };
                *place = *byte;
                self.have += 1;
                at += 1;
                if self.have < 2 || self.have < 2 + extended(self.head[1]) {
                    continue;
                }
                if self.begin() && pass == Pass::All {
                    pass = Pass::TooLong(start);
                }
                self.have = 0;
            }
            if self.left == 0 && !self.fault && self.end() && !self.discard {
                return Pass::Large(at);
            }
        }
        pass
    }

    /// A header is whole. True: its message is too long.
    fn begin(&mut self) -> bool {
        let [first, second, rest @ ..] = self.head;
        self.first = first;
        let [a, b, c, d, e, f, g, h] = rest;
        let (len, shortest) = match second & 0x7f {
            126 => (u64::from(u16::from_be_bytes([a, b])), 126),
            127 => (u64::from_be_bytes([a, b, c, d, e, f, g, h]), 1 << 16),
            short => (u64::from(short), 0),
        };
        let fin = first & 0x80 != 0;
        let masked = second & 0x80 != 0;
        // Exactly what the library refuses by the header, before it looks at the length. Such a frame ends the
        // connection with the library's own code.
        self.fault = first & 0x70 != 0
            || masked != self.server
            || len < shortest
            || match first & 0xf {
                0 => !self.open,
                1 | 2 => self.open,
                8 => len == 1 || len > 125 || !fin,
                9 | 10 => len > 125 || !fin,
                _ => true,
            };
        if self.fault {
            return false;
        }
        self.left = len.saturating_add(if masked { 4 } else { 0 });
        if first & 0x8 != 0 {
            return false;
        }
        if first & 0xf != 0 {
            (self.message, self.empty) = (0, 0);
        }
        self.message = self.message.saturating_add(len);
        self.empty += u64::from(len == 0);
        self.open = !fin;
        let over = !self.discard && (self.message > self.limit || self.empty > self.limit.max(1));
        if over {
            self.too_long = Some(self.message);
            self.discard = true;
        }
        over
    }

    /// A frame is whole. True: it ended a large message.
    fn end(&mut self) -> bool {
        match self.first & 0xf {
            8 => {
                self.closed = true;
                false
            }
            0..=2 => !self.open && self.message > LARGE,
            _ => false,
        }
    }
}

/// Bytes of extended length that follow the second byte.
fn extended(second: u8) -> usize {
    match second & 0x7f {
        126 => 2,
        127 => 8,
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
