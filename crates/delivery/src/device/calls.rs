//! The calls of the agent that name a device.

use protocol::{
    link::{CallError, CallValue, FileRefused, FileTaken, FromAgent, Offline, TurnState},
    record::{Body, FileRecord, Mark, Pos},
    server::DeliverState,
    words::Say,
};

use super::{
    Device, Effect, Taking,
    deliver::{Pending, Who},
    messages::Saying,
    write::{FileSend, parts},
};
use crate::{
    io::{Action, AgentId},
    outbox::id_hash,
    shared::{Ctx, call_error},
};

impl Device {
    /// A call of the agent's. While a file is being taken over, later calls wait, so that things arrive in the order in
    /// which they were said.
    pub(crate) fn call(&mut self, agent: AgentId, call: FromAgent, ctx: &mut Ctx<'_>) {
        if self.busy.taking.is_some() {
            self.busy.calls.push_back((agent, call));
        } else {
            self.call_now(agent, call, ctx);
        }
    }

    pub(super) fn call_now(&mut self, agent: AgentId, call: FromAgent, ctx: &mut Ctx<'_>) {
        if let Err(error) = check_labels(&call) {
            if let Some(req) = call.req() {
                ctx.result(agent, req, Err(error));
            }
            return;
        }
        match call {
            FromAgent::Turn { state, .. } => self.turn_call(state, ctx),
            FromAgent::Status { text, .. } => {
                let mut frames = Vec::new();
                self.busy.turn.status(text, ctx.now, &mut frames);
                self.push_frames(frames);
            }
            FromAgent::Send { req, key, text, last, reply_to, offline, .. } => {
                self.send_call(agent, req, Saying { key, text, last, reply_to }, offline, ctx);
            }
            FromAgent::Edit { req, message_id, text, last, .. } => {
                if let Err(error) = check_text(&text).and_then(|()| self.edit(&message_id, &text, last, ctx))
                {
                    ctx.result(agent, req, Err(error));
                } else {
                    self.message_result(agent, req, message_id, ctx);
                }
            }
            FromAgent::Media { .. } => self.media_call(agent, call, ctx),
            FromAgent::Prompt { .. } => self.prompt_call(agent, call, ctx),
            FromAgent::PromptClose { req, prompt_id, option_id, reason } => {
                if self.busy.cards.is_open(&prompt_id) {
                    let expired = option_id.is_none();
                    let end = session::cards::End { option_id, expired, reason: Some(reason) };
                    self.close_card(&prompt_id, end, ctx);
                    self.after_batch(Effect::Result { agent, req, value: None }, ctx);
                } else {
                    ctx.result(
                        agent,
                        req,
                        Err(call_error("not_found", "prompt_id is not an open card", false)),
                    );
                }
            }
            FromAgent::Conversation { .. } => {
                for id in self.busy.cards.open_ids(None) {
                    self.close_refused(&id, "new_conversation", ctx);
                }
            }
            FromAgent::Device { req, .. } => {
                let mut info = self.state.info.clone();
                info.online = self.online();
                ctx.result(agent, req, Ok(Some(CallValue::Device(info))));
            }
            FromAgent::Ack { event } => self.busy.inbox.ack(event),
            FromAgent::Done { event, .. } => self.event_done(event, ctx),
            FromAgent::Take { req, event } => self.take_call(agent, req, event, ctx),
            FromAgent::Applied { event, ok, option_id, reason } => {
                self.applied_call(event, ok, option_id, reason, ctx);
            }
            FromAgent::Answer { .. } => {}
        }
    }

    fn turn_call(&mut self, state: TurnState, ctx: &mut Ctx<'_>) {
        let mut frames = Vec::new();
        match state {
            TurnState::On => self.busy.turn.on(ctx.now, &mut frames),
            TurnState::Off => self.busy.turn.off(ctx.now, ctx.shared.settings.idle_after_ms, &mut frames),
            TurnState::Failed => {
                self.close_bubbles(|_| true, ctx);
                self.busy.turn.clear(&mut frames);
            }
        }
        self.push_frames(frames);
    }

    fn send_call(&mut self, agent: AgentId, req: u64, saying: Saying, offline: Offline, ctx: &mut Ctx<'_>) {
        let id = ctx.shared.message_id(self.no, &saying.key);
        if offline == Offline::Fail {
            let who = Who::Agent { agent, req };
            if let Err(error) = check_text(&saying.text) {
                ctx.result(agent, req, Err(error));
            } else {
                self.deliver(&id, saying.text, false, who, ctx);
            }
            return;
        }
        // A reply that another life of the agent has begun under this key, or that this call ends, goes on.
        let goes_on = self.busy.open.iter().any(|open| open.of == id && (open.restored || saying.last));
        if self.said_before(&id) && !goes_on {
            ctx.shared.counts.repeats_from_agents += 1;
            // The first result again, when what the first call wrote is on disk.
            let value = Some(CallValue::Message { message_id: id, state: DeliverState::Queued });
            self.after_last(Effect::Result { agent, req, value });
            return;
        }
        if let Err(error) = check_text(&saying.text) {
            ctx.result(agent, req, Err(error));
            return;
        }
        self.say(&id, &saying, ctx);
        self.message_result(agent, req, id, ctx);
    }

    fn media_call(&mut self, agent: AgentId, call: FromAgent, ctx: &mut Ctx<'_>) {
        let FromAgent::Media { req, key, kind, source, mime, filename, caption, offline, .. } = &call else {
            return;
        };
        let req = *req;
        let id = ctx.shared.message_id(self.no, key);
        if self.said_before(&id) {
            ctx.shared.counts.repeats_from_agents += 1;
            let value = Some(CallValue::Message { message_id: id, state: DeliverState::Queued });
            self.after_last(Effect::Result { agent, req, value });
            return;
        }
        if *offline == Offline::Fail && !self.online() {
            ctx.result(agent, req, Err(call_error("device_offline", "the device is not connected", false)));
            return;
        }
        if caption.as_ref().is_some_and(|caption| caption.chars().count() > super::limits::CAPTION_CHARS) {
            let allowed = super::limits::CAPTION_CHARS;
            let why = format!("caption must be at most {allowed} characters");
            ctx.result(agent, req, Err(call_error("too_big", why, false)));
            return;
        }
        let ticket = ctx.shared.number();
        ctx.out.push(Action::TakeFile {
            device: self.no,
            ticket,
            source: source.clone(),
            mime: mime.clone(),
            filename: filename.clone(),
            kind: *kind,
        });
        // The bytes went with the action; they are not kept twice.
        let mut call = call;
        if let FromAgent::Media { source, .. } = &mut call {
            *source = protocol::link::MediaSource::Path(String::new());
        }
        self.busy.taking = Some(Taking { ticket, agent, call });
    }

    /// A file of the agent's was taken over, or not.
    pub(super) fn finish_media(
        &mut self,
        agent: AgentId,
        call: FromAgent,
        done: Result<FileTaken, FileRefused>,
        ctx: &mut Ctx<'_>,
    ) {
        let FromAgent::Media { req, key, kind, caption, reply_to, offline, .. } = call else { return };
        let taken = match done {
            Ok(taken) => taken,
            Err(refused) => {
                let (code, why, retryable, say) = match refused {
                    FileRefused::NotAllowed { name } => (
                        "refused",
                        "path must be a regular file inside media_out, not a link and not a URL".to_owned(),
                        false,
                        Some(Say::FileRefused(name)),
                    ),
                    FileRefused::TooLarge { name } => (
                        "too_big",
                        format!("a file must be at most {} bytes", super::limits::FILE_BYTES),
                        false,
                        Some(Say::FileTooLarge(name)),
                    ),
                    FileRefused::Empty => ("refused", "the file is empty".to_owned(), false, None),
                    FileRefused::Missing => {
                        ("not_found", "there is no such file in media_out".to_owned(), false, None)
                    }
                    FileRefused::Failed(why) => ("internal", why, true, None),
                };
                if let Some(say) = say {
                    self.notice(say, ctx);
                }
                ctx.result(agent, req, Err(call_error(code, why, retryable)));
                return;
            }
        };
        let id = ctx.shared.message_id(self.no, &key);
        let once = offline == Offline::Fail;
        if once && !self.online() {
            ctx.out.push(Action::Remove { file: taken.file });
            ctx.result(agent, req, Err(call_error("device_offline", "the device is not connected", false)));
            return;
        }
        self.busy.turn.said();
        let content = taken.content.max(1);
        let record = FileRecord {
            seq: None,
            id: id.clone(),
            kind,
            mime: taken.mime,
            filename: taken.filename,
            caption,
            file: taken.file,
            bytes: taken.bytes,
            reply_to,
            once,
        };
        let seq = self.file_item(record, content, ctx);
        if once {
            let who = Who::Agent { agent, req };
            let until = ctx.now + ctx.shared.settings.deliver_ms;
            self.busy.pending.push(Pending { id, seq, until, who, queue: false });
        } else {
            self.message_result(agent, req, id, ctx);
        }
    }

    /// Stores a file and sends it. A large one on a living connection gets its `seq` when its last part is due.
    fn file_item(&mut self, mut record: FileRecord, content: u64, ctx: &mut Ctx<'_>) -> Option<u64> {
        let hash = id_hash(&record.id);
        self.given.put(hash, content, ctx.now);
        let later = parts(record.bytes) > 1 && self.streams_files();
        if !later {
            record.seq = Some(self.seq());
        }
        self.dirty = true;
        let pos: Pos = ctx.append(
            self.no,
            &Body::File(record.clone()),
            Some(&Mark::Out { id: hash, content, once: record.once }),
        );
        if let Some(seq) = record.seq {
            self.item(seq, pos, hash, record.once, ctx);
        }
        let seq = record.seq;
        if later {
            self.busy.unplaced.push((record.id.clone(), pos));
        }
        self.push_file(FileSend::new(record), ctx);
        seq
    }

    /// The agent says how a card stands that it was asked about.
    pub(crate) fn card_stands(
        &mut self,
        prompt_id: &str,
        state: protocol::link::CardState,
        option_id: Option<String>,
        ctx: &mut Ctx<'_>,
    ) {
        let (end, then) = self.busy.cards.stands(prompt_id, state, option_id);
        if let Some(end) = end {
            self.close_card(prompt_id, end, ctx);
        }
        if let Some(answer) = then {
            self.card_answer(&answer, ctx);
        }
    }
}

/// What goes into a frame beside the text is short, so that no frame grows over its limit.
fn check_labels(call: &FromAgent) -> Result<(), CallError> {
    let (labels, most): (&[(&str, &Option<String>)], usize) = match call {
        FromAgent::Send { reply_to, .. } => (&[("reply_to", reply_to)], super::limits::ID_CHARS),
        FromAgent::Media { reply_to, mime, .. } => {
            (&[("reply_to", reply_to), ("mime", mime)], super::limits::ID_CHARS)
        }
        FromAgent::Status { text, .. } => (&[("text", text)], super::limits::LABEL_CHARS),
        FromAgent::PromptClose { option_id, .. } => (&[("option_id", option_id)], super::limits::ID_CHARS),
        _ => return Ok(()),
    };
    for (name, value) in labels {
        if value.as_ref().is_some_and(|value| value.chars().count() > most) {
            return Err(call_error("bad_call", format!("{name} must be at most {most} characters"), false));
        }
    }
    let most = super::limits::LABEL_CHARS;
    match call {
        FromAgent::PromptClose { reason, .. } if reason.chars().count() > most => {
            Err(call_error("bad_call", format!("reason must be at most {most} characters"), false))
        }
        _ => Ok(()),
    }
}

fn check_text(text: &str) -> Result<(), CallError> {
    let most = super::limits::AGENT_TEXT_BYTES;
    if text.len() > most {
        return Err(call_error("too_big", format!("text must be at most {most} bytes of UTF-8"), false));
    }
    Ok(())
}
