//! A plain client: draws by id, repeats with the same id what is not answered, knows nothing of `seq` but keeps it for
//! the checks. What it must never see is an error here.

use std::collections::BTreeMap;

use delivery::ConnId;
use protocol::{
    code::ErrorCode,
    record::hash128,
    server::{AvatarState, Media, Message, PromptOption, ServerFrame},
};

/// A message as it is drawn.
#[derive(Debug)]
pub(crate) struct Bubble {
    pub(crate) id: String,
    pub(crate) text: String,
    pub(crate) last: bool,
    /// Drawn by an edit: the whole text.
    whole: bool,
    next: u32,
    pub(crate) seq: Option<u64>,
}

/// A file as it comes in.
#[derive(Debug, Default)]
pub(crate) struct File {
    data: Vec<u8>,
    next: u32,
    /// Hash of the whole file.
    pub(crate) done: Option<u128>,
}

/// A card as it is drawn.
#[derive(Debug, Default)]
pub(crate) struct Card {
    pub(crate) options: Vec<PromptOption>,
    pub(crate) pressed: Vec<String>,
    pub(crate) done: Option<(Option<String>, bool)>,
}

/// Which reply answers something.
#[derive(Debug)]
pub(crate) enum Expect {
    /// One of these texts.
    Exactly(Vec<String>),
    Prefix(String),
    Contains(String),
    /// Nothing that could be told from other replies.
    Nothing,
}

impl Expect {
    pub(crate) fn fits(&self, text: &str) -> bool {
        match self {
            Self::Exactly(texts) => texts.iter().any(|t| t == text),
            Self::Prefix(prefix) => text.starts_with(prefix.as_str()),
            Self::Contains(part) => text.contains(part.as_str()),
            Self::Nothing => false,
        }
    }
}

/// Something said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) id: String,
    pub(crate) what: String,
    pub(crate) frames: Vec<String>,
    pub(crate) expect: Expect,
    /// On disk: what an `ack` would tell.
    pub(crate) accepted: bool,
    pub(crate) answered: bool,
    pub(crate) tries: u32,
}

impl Said {
    pub(crate) fn wanted(&self) -> bool {
        let enough = self.accepted && matches!(self.expect, Expect::Nothing);
        !self.answered && !enough
    }
}

/// What a frame makes the client do.
pub(crate) enum Want {
    /// The session is open.
    Ready,
    /// A new card.
    Card { id: String, seconds: u64 },
    /// The answer to this card was withdrawn.
    Withdrawn { id: String },
    /// This was not accepted.
    Again { id: String },
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) id: String,
    pub(crate) conn: Option<ConnId>,
    pub(crate) ready: bool,
    pub(crate) bubbles: Vec<Bubble>,
    pub(crate) files: BTreeMap<String, File>,
    pub(crate) cards: BTreeMap<String, Card>,
    pub(crate) avatar: AvatarState,
    pub(crate) typing: bool,
    /// What each `seq` was.
    seqs: BTreeMap<u64, String>,
    pub(crate) said: Vec<Said>,
    /// A message with this in it ends the connection.
    pub(crate) chokes_on: Option<String>,
}

impl Client {
    pub(crate) const fn new(id: String) -> Self {
        Self {
            id,
            conn: None,
            ready: false,
            bubbles: Vec::new(),
            files: BTreeMap::new(),
            cards: BTreeMap::new(),
            avatar: AvatarState::Idle,
            typing: false,
            seqs: BTreeMap::new(),
            said: Vec::new(),
            chokes_on: None,
        }
    }

    /// A new connection: nothing of the old one's state counts.
    pub(crate) fn connected(&mut self, conn: ConnId) {
        self.conn = Some(conn);
        self.ready = false;
        self.avatar = AvatarState::Idle;
        self.typing = false;
    }

    pub(crate) fn disconnected(&mut self) {
        self.conn = None;
        self.ready = false;
    }

    pub(crate) fn chokes(&self, text: &str) -> bool {
        self.chokes_on.as_ref().is_some_and(|part| text.contains(part.as_str()))
    }

    /// Draws a frame.
    pub(crate) fn frame(&mut self, frame: &ServerFrame) -> Result<Option<Want>, String> {
        match frame {
            ServerFrame::Ready(_) => {
                self.ready = true;
                return Ok(Some(Want::Ready));
            }
            ServerFrame::Error(error) => {
                let Some(id) = error.id.clone() else {
                    return if error.fatal || error.code == ErrorCode::Internal {
                        Ok(None)
                    } else {
                        Err(format!("an error without an id: {error:?}"))
                    };
                };
                return match error.code {
                    ErrorCode::AgentOffline => Ok(Some(Want::Withdrawn { id })),
                    ErrorCode::Internal => Ok(Some(Want::Again { id })),
                    // A series that was cut and came again much later.
                    ErrorCode::BadFrame
                        if error.detail.as_deref().is_some_and(|d| d.starts_with("no part came")) =>
                    {
                        Ok(Some(Want::Again { id }))
                    }
                    // An answer that the card does not have.
                    ErrorCode::BadFrame if self.cards.contains_key(&id) => Ok(None),
                    _ => Err(format!("a client that keeps the rules is refused: {error:?}")),
                };
            }
            ServerFrame::Message(message) => self.message(message)?,
            ServerFrame::Media(media) => self.media(media)?,
            ServerFrame::Prompt(prompt) => {
                if prompt.timeout_seconds == 0 || prompt.options.is_empty() {
                    return Err(format!("a card without time or options: {prompt:?}"));
                }
                self.seq(prompt.seq, format!("card {}", prompt.id))?;
                if let Some(known) = self.cards.get(&prompt.id) {
                    if known.done.is_some() {
                        return Err(format!("card {} comes back after its end", prompt.id));
                    }
                    return Ok(None);
                }
                let card = Card { options: prompt.options.clone(), ..Card::default() };
                self.cards.insert(prompt.id.clone(), card);
                return Ok(Some(Want::Card { id: prompt.id.clone(), seconds: prompt.timeout_seconds }));
            }
            ServerFrame::PromptDone(done) => {
                self.seq(done.seq, format!("end of card {}", done.id))?;
                let end = (done.option_id.clone(), done.expired);
                let card = self.cards.entry(done.id.clone()).or_default();
                if card.done.as_ref().is_some_and(|first| *first != end) {
                    return Err(format!("card {} ended as {:?} and as {end:?}", done.id, card.done));
                }
                card.done = Some(end);
            }
            ServerFrame::Avatar { state } => self.avatar = *state,
            ServerFrame::Typing(typing) => self.typing = !typing.stop,
            ServerFrame::Pong { .. } | ServerFrame::DeliverDone { .. } => {}
        }
        Ok(None)
    }

    fn seq(&mut self, seq: Option<u64>, what: String) -> Result<(), String> {
        let Some(seq) = seq else { return Ok(()) };
        match self.seqs.get(&seq) {
            Some(before) if *before != what => {
                Err(format!("seq {seq} of {} was {before} and is {what}", self.id))
            }
            _ => {
                self.seqs.insert(seq, what);
                Ok(())
            }
        }
    }

    fn message(&mut self, m: &Message) -> Result<(), String> {
        let at = match self.bubbles.iter().position(|b| b.id == m.id) {
            Some(at) => at,
            None => {
                if !m.edit && m.chunk.index != 0 {
                    return Err(format!("message {} begins with chunk {}", m.id, m.chunk.index));
                }
                self.bubbles.push(Bubble {
                    id: m.id.clone(),
                    text: String::new(),
                    last: false,
                    whole: false,
                    next: 0,
                    seq: None,
                });
                self.bubbles.len() - 1
            }
        };
        let Some(bubble) = self.bubbles.get_mut(at) else { return Ok(()) };
        if m.edit {
            if bubble.last && !m.last {
                return Err(format!("message {} is open again after its end", m.id));
            }
            bubble.text.clone_from(&m.text);
            bubble.whole = true;
        } else {
            if bubble.whole || m.chunk.index != bubble.next {
                return Err(format!("chunk {} of message {} is drawn twice", m.chunk.index, m.id));
            }
            bubble.text.push_str(&m.text);
            bubble.next += 1;
        }
        bubble.last = m.last;
        bubble.seq = m.seq.or(bubble.seq);
        let (last, text) = (m.last, bubble.text.clone());
        self.seq(m.seq, format!("message {} {text:?}", m.id))?;
        if last {
            for said in &mut self.said {
                said.answered = said.answered || said.expect.fits(&text);
            }
        }
        Ok(())
    }

    fn media(&mut self, m: &Media) -> Result<(), String> {
        let file = self.files.entry(m.id.clone()).or_default();
        if m.part == 0 {
            file.data.clear();
            file.next = 0;
        }
        if m.part != file.next || m.last != (m.part + 1 == m.parts) {
            return Err(format!("file {}: part {} of {} comes after {}", m.id, m.part, m.parts, file.next));
        }
        file.next += 1;
        let part = protocol::base64::decode(&m.data, m.part == 0, 8 << 20).map_err(|p| p.detail)?;
        file.data.extend_from_slice(&part);
        if m.last {
            let data = std::mem::take(&mut file.data);
            if data.len() as u64 != m.size {
                return Err(format!("file {}: {} bytes instead of {}", m.id, data.len(), m.size));
            }
            let hash = hash128(&[&data]);
            if file.done.is_some_and(|before| before != hash) {
                return Err(format!("file {} came twice with other bytes", m.id));
            }
            file.done = Some(hash);
        }
        self.seq(m.seq, format!("file {}", m.id))
    }
}
