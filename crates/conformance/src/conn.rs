//! One connection of a case: what came, how far it was looked at, and what is waited for.

use std::time::Duration;

use protocol::words::Lang;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use crate::{
    frame::{CLOSE, FIN, close_payload},
    socket::{Got, Socket},
    value::{Names, matches},
};

/// A text in both languages. Frames are the same in either.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    ru: String,
    en: String,
}

impl Said {
    pub(crate) fn both(ru: impl Into<String>, en: impl Into<String>) -> Self {
        Self { ru: ru.into(), en: en.into() }
    }

    /// The text in a language.
    #[must_use]
    pub fn text(&self, lang: Lang) -> &str {
        match lang {
            Lang::Ru => &self.ru,
            Lang::En => &self.en,
        }
    }

    /// The same with both texts changed.
    pub(crate) fn map(self, change: impl Fn(String) -> String) -> Self {
        Self { ru: change(self.ru), en: change(self.en) }
    }
}

impl<T: Into<String>> From<T> for Said {
    fn from(text: T) -> Self {
        let text = text.into();
        Self { ru: text.clone(), en: text }
    }
}

/// A step that was not met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unmet {
    /// What should have come.
    pub(crate) expected: Said,
    /// What is known instead.
    pub(crate) came: Said,
}

impl Unmet {
    pub(crate) fn new(expected: impl Into<Said>, came: impl Into<Said>) -> Self {
        Self { expected: expected.into(), came: came.into() }
    }
}

/// A frame that came.
#[derive(Clone, Debug)]
pub(crate) struct Came {
    pub(crate) value: Value,
    /// Bytes of its JSON.
    pub(crate) bytes: usize,
}

/// How a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Close(Option<u16>),
    /// The stream ended without a close frame; `true`: not by a reset.
    Stream(bool),
    Fault(String),
}

impl Ended {
    fn words(&self) -> Said {
        match self {
            Self::Close(Some(code)) => {
                Said::both(format!("сервер закрыл с кодом {code}"), format!("the server closed with {code}"))
            }
            Self::Close(None) => Said::both("сервер закрыл без кода", "the server closed without a code"),
            Self::Stream(true) => Said::both(
                "соединение кончилось без кадра закрытия",
                "the connection ended without a close frame",
            ),
            Self::Stream(false) => Said::both("соединение сброшено", "the connection was reset"),
            Self::Fault(what) => {
                Said::both(format!("сервер прислал: {what}"), format!("the server sent: {what}"))
            }
        }
    }
}

/// What was sent and came, for the report: connection, direction, text.
pub(crate) type Transcript = Vec<(String, &'static str, String)>;

#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) name: String,
    pub(crate) socket: Socket,
    log: Vec<Came>,
    /// Frames before this one were looked at.
    cursor: usize,
    mark: usize,
    /// When something was sent last, or it was opened.
    pub(crate) since: Instant,
    pings: usize,
    ended: Option<Ended>,
    barriers: u64,
}

/// What must not come while something is waited for.
pub(crate) struct Watch<'a> {
    pub(crate) until: Instant,
    pub(crate) without: &'a [Value],
    pub(crate) anywhere: bool,
}

impl Watch<'_> {
    pub(crate) fn within(patience: Duration) -> Self {
        Self { until: Instant::now() + patience, without: &[], anywhere: false }
    }
}

impl Conn {
    pub(crate) fn new(name: &str, socket: Socket, since: Instant) -> Self {
        Self {
            name: name.into(),
            socket,
            log: vec![],
            cursor: 0,
            mark: 0,
            since,
            pings: 0,
            ended: None,
            barriers: 0,
        }
    }

    pub(crate) async fn send(&mut self, text: &str, lines: &mut Transcript) {
        lines.push((self.name.clone(), ">", text.to_owned()));
        self.since = Instant::now();
        self.socket.text(text).await;
    }

    pub(crate) fn set_mark(&mut self) {
        self.mark = self.log.len();
    }

    /// Waits for something more; `false` when the time is over.
    async fn more(&mut self, until: Instant, lines: &mut Transcript) -> bool {
        let Ok(got) = timeout_at(until, self.socket.next()).await else { return false };
        let line = match got {
            Got::Text(text) => {
                let value = serde_json::from_str(&text).unwrap_or(Value::Null);
                let bytes = text.len();
                if !value.is_object() {
                    self.ended.get_or_insert(Ended::Fault("a message that is no JSON object".into()));
                }
                self.log.push(Came { value, bytes });
                text
            }
            Got::Ping(_) => {
                self.pings += 1;
                "(ping)".into()
            }
            Got::Close(code) => {
                self.ended.get_or_insert(Ended::Close(code));
                format!("(close {})", code.map_or("without a code".into(), |code| code.to_string()))
            }
            Got::Fault(what) => {
                self.ended.get_or_insert(Ended::Fault(what.clone()));
                format!("({what})")
            }
            Got::End(clean) => {
                self.ended.get_or_insert(Ended::Stream(clean));
                (if clean { "(end)" } else { "(reset)" }).into()
            }
        };
        lines.push((self.name.clone(), "<", line));
        true
    }

    /// The next frame that was not looked at.
    pub(crate) async fn next(
        &mut self,
        expected: &Said,
        until: Instant,
        lines: &mut Transcript,
    ) -> Result<Came, Unmet> {
        loop {
            if let Some(came) = self.log.get(self.cursor) {
                self.cursor += 1;
                return Ok(came.clone());
            }
            if let Some(ended) = &self.ended {
                return Err(Unmet::new(expected.clone(), ended.words()));
            }
            if !self.more(until, lines).await {
                return Err(Unmet::new(expected.clone(), nothing_more()));
            }
        }
    }

    /// Waits for a frame like `pattern`. Any error that is not it ends the wait.
    pub(crate) async fn expect(
        &mut self,
        pattern: &Value,
        watch: &Watch<'_>,
        names: &mut Names,
        lines: &mut Transcript,
    ) -> Result<Came, Unmet> {
        let expected = short(pattern);
        if watch.anywhere {
            if let Some(came) =
                self.log.iter().skip(self.mark).find(|came| matches(pattern, &came.value, names))
            {
                return Ok(came.clone());
            }
            self.cursor = self.log.len();
        }
        loop {
            let came = self.next(&expected.as_str().into(), watch.until, lines).await?;
            if matches(pattern, &came.value, names) {
                return Ok(came);
            }
            let mut scratch = Names::new();
            if let Some(bad) = watch.without.iter().find(|bad| matches(bad, &came.value, &mut scratch)) {
                return Err(Unmet::new(
                    Said::both(
                        format!("{expected}, а до него ничего похожего на {}", short(bad)),
                        format!("{expected}, and before it nothing like {}", short(bad)),
                    ),
                    short(&came.value),
                ));
            }
            if is_error(&came.value) && !watch.anywhere {
                return Err(Unmet::new(expected, short(&came.value)));
            }
        }
    }

    /// Waits for frames in this order; one of them that comes before its turn is wrong.
    pub(crate) async fn order(
        &mut self,
        patterns: &[Value],
        until: Instant,
        names: &mut Names,
        lines: &mut Transcript,
    ) -> Result<(), Unmet> {
        let mut at = 0;
        while let Some(pattern) = patterns.get(at) {
            let came = self.next(&short(pattern).into(), until, lines).await?;
            if matches(pattern, &came.value, names) {
                at += 1;
                continue;
            }
            let early =
                patterns.iter().skip(at + 1).any(|later| matches(later, &came.value, &mut Names::new()));
            // The same frame as the one before may come again (a second chunk, a renewed `typing`).
            let before = at.checked_sub(1).and_then(|before| patterns.get(before));
            let again = before.is_some_and(|before| matches(before, &came.value, &mut Names::new()));
            if (early && !again) || is_error(&came.value) {
                return Err(Unmet::new(
                    short(pattern),
                    Said::both(
                        format!("до него: {}", short(&came.value)),
                        format!("before it: {}", short(&came.value)),
                    ),
                ));
            }
        }
        Ok(())
    }

    /// How many frames like `pattern` came since the mark. A ping and its pong make sure that what was sent is done.
    pub(crate) async fn count(
        &mut self,
        pattern: &Value,
        until: Instant,
        lines: &mut Transcript,
    ) -> Result<Vec<Value>, Unmet> {
        self.barriers += 1;
        let ping = format!(r#"{{"t":"ping","ts":"{}{}"}}"#, self.name, self.barriers);
        let from = self.log.len();
        self.send(&ping, lines).await;
        while !self.log.iter().skip(from).any(|came| came.value.get("t") == Some(&"pong".into())) {
            if let Some(ended) = &self.ended {
                return Err(Unmet::new("pong", ended.words()));
            }
            if !self.more(until, lines).await {
                return Err(Unmet::new("pong", nothing_more()));
            }
        }
        self.cursor = self.log.len();
        let found = self.log.iter().skip(self.mark).map(|came| &came.value);
        Ok(found.filter(|value| matches(pattern, value, &mut Names::new())).cloned().collect())
    }

    /// Waits for a ping of the server that was not waited for before.
    pub(crate) async fn pinged(&mut self, until: Instant, lines: &mut Transcript) -> Result<(), Unmet> {
        while self.pings == 0 {
            if let Some(ended) = &self.ended {
                return Err(Unmet::new("WebSocket ping", ended.words()));
            }
            if !self.more(until, lines).await {
                return Err(Unmet::new("WebSocket ping", nothing_more()));
            }
        }
        self.pings -= 1;
        Ok(())
    }

    /// Waits for the close frame.
    pub(crate) async fn closed(
        &mut self,
        code: u16,
        until: Instant,
        lines: &mut Transcript,
    ) -> Result<(), Unmet> {
        let expected = format!("close {code}");
        while self.ended.is_none() {
            if !self.more(until, lines).await {
                return Err(Unmet::new(
                    expected,
                    Said::both("соединение ещё открыто", "the connection is still open"),
                ));
            }
        }
        match &self.ended {
            Some(Ended::Close(Some(came))) if *came == code => Ok(()),
            Some(ended) => Err(Unmet::new(expected, ended.words())),
            None => Ok(()),
        }
    }

    /// Closes; waits for the end of the stream, so that the server has handled it.
    pub(crate) async fn close(&mut self, code: u16, until: Instant, lines: &mut Transcript) {
        lines.push((self.name.clone(), ">", format!("(close {code})")));
        self.socket.frame(FIN | CLOSE, &close_payload(Some(code))).await;
        while self.ended.is_none() && self.more(until, lines).await {}
    }
}

fn is_error(value: &Value) -> bool {
    value.get("t").and_then(Value::as_str) == Some("error")
}

fn nothing_more() -> Said {
    Said::both("больше ничего за отведённое время", "nothing more in time")
}

/// JSON, shortened for a person.
pub(crate) fn short(value: &Value) -> String {
    cut(&value.to_string(), 400)
}

/// The beginning of a long text.
pub(crate) fn cut(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        Some((at, _)) => {
            format!("{}… ({} bytes)", text.get(..at).unwrap_or_default(), text.len())
        }
        None => text.into(),
    }
}
