//! What the device says: texts, voice, files, answers to cards.

use protocol::{
    client::{ClientFrame, MediaPart, Text},
    code::{CloseCode, ErrorCode},
    link::{InFile, User},
    problem::Problem,
    record::{Body, InBody, InRecord, Mark, hash64, hash128},
    series::{SpoolNo, Step},
    server::ServerFrame,
    words::Say,
};

use super::{Device, Effect, Held, limits};
use crate::{
    gate,
    inbox::Stage,
    io::{Action, MediaDone},
    shared::Ctx,
};

impl Device {
    pub(super) fn said(&mut self, frame: ClientFrame, ctx: &mut Ctx<'_>) {
        match frame {
            // A file that came before it is being put together; the order stays.
            ClientFrame::Text(_) | ClientFrame::Ping { .. } if !self.busy.held.is_empty() => {
                self.busy.held.push_back(Held::Frame(frame));
            }
            frame => self.said_now(frame, ctx),
        }
    }

    fn said_now(&mut self, frame: ClientFrame, ctx: &mut Ctx<'_>) {
        match frame {
            ClientFrame::Text(text) => self.text(text, ctx),
            ClientFrame::Media(part) => self.part(part, ctx),
            ClientFrame::Prompt(answer) => self.card_answer(&answer, ctx),
            ClientFrame::Ping { ts } => self.pong_after_input(ServerFrame::Pong { ts }, ctx),
            ClientFrame::Hello(_) => self.refuse(&Problem::bad("hello: the session is open already"), ctx),
            // The core has dealt with `deliver`; an unknown type is ignored.
            ClientFrame::Deliver(_) | ClientFrame::Unknown { .. } => {}
        }
    }

    /// A frame that was refused before it got here.
    pub(super) fn bad(&mut self, problem: Problem, ctx: &mut Ctx<'_>) {
        if let Some(id) = &problem.ends_series {
            let id = id.clone();
            self.with_series(ctx, |series, ctx, discard| series.end(&id, ctx.now, discard));
        }
        if problem.rubbish {
            self.rubbish += 1;
            if self.rubbish >= limits::BAD_FRAMES
                && let Some(live) = &self.live
            {
                let lang = live.lang;
                self.answer(&gate::error(&problem, true, lang), ctx);
                self.let_go(CloseCode::Rubbish, ctx);
                return;
            }
        } else {
            self.rubbish = 0;
        }
        self.refuse(&problem, ctx);
    }

    /// A `pong` tells a plain client that what it sent before is safe: it waits for the disk with it.
    fn pong_after_input(&mut self, pong: ServerFrame, ctx: &mut Ctx<'_>) {
        if self.busy.effects.iter().any(|(_, effect)| matches!(effect, Effect::Accepted { .. })) {
            self.after_last(Effect::Answer(Box::new(pong)));
        } else {
            self.answer(&pong, ctx);
        }
    }

    fn text(&mut self, text: Text, ctx: &mut Ctx<'_>) {
        let content = hash64(&[b"text", text.text.as_bytes()]);
        let bytes = text.text.len();
        if let Err(problem) = self.accept(text.id, InBody::Text { text: text.text }, content, bytes, ctx) {
            self.refuse(&problem, ctx);
        }
    }

    /// Accepts what was said, once by id. `Ok(false)`: it was accepted before.
    fn accept(
        &mut self,
        id: Option<String>,
        what: InBody,
        content: u64,
        bytes: usize,
        ctx: &mut Ctx<'_>,
    ) -> Result<bool, Problem> {
        let id = id.unwrap_or_else(|| ctx.shared.random.make("g"));
        let hash = hash128(&[b"in", id.as_bytes()]);
        match self.seen.get(hash) {
            Some(known) if known == content => {
                ctx.shared.counts.repeats_from_devices += 1;
                return Ok(false);
            }
            Some(_) => {
                return Err(Problem::bad("id already used for something else")
                    .saying(Say::IdUsed)
                    .with_id(Some(id)));
            }
            None => {}
        }
        self.seen.put(hash, content, ctx.now);
        let record = InRecord { id: id.clone(), user: self.user(), what };
        let body = Body::In(record);
        let pos = ctx.append(self.no, &body, Some(&Mark::In { id: hash, content }));
        self.inputs += 1;
        if let Body::In(record) = body {
            let stage = if crate::mutants::is(crate::mutants::Mutant::ToldBeforeDisk) {
                Stage::Waiting
            } else {
                Stage::Storing
            };
            self.busy.inbox.add(pos, ctx.now, record, bytes, stage, false);
        }
        ctx.shared.events.insert(pos, self.no);
        self.after_batch(Effect::Accepted { pos, id, hash }, ctx);
        Ok(true)
    }

    pub(super) fn user(&self) -> User {
        User {
            id: self.state.info.user_id.clone().unwrap_or_else(|| self.id().to_owned()),
            name: self.live.as_ref().and_then(|live| live.user_name.clone()),
            proven: self.live.as_ref().is_some_and(|live| live.proven),
        }
    }

    /// Runs `f` on the series, keeps the account of all devices, and throws away what it says.
    fn with_series<R>(
        &mut self,
        ctx: &mut Ctx<'_>,
        f: impl FnOnce(&mut protocol::series::SeriesTable, &mut Ctx<'_>, &mut Vec<SpoolNo>) -> R,
    ) -> R {
        let before = self.busy.series.bytes();
        let mut discard = Vec::new();
        let result = f(&mut self.busy.series, ctx, &mut discard);
        ctx.shared.spool_bytes = (ctx.shared.spool_bytes + self.busy.series.bytes()).saturating_sub(before);
        for spool in discard {
            ctx.out.push(Action::Discard { spool });
        }
        result
    }

    fn part(&mut self, mut part: MediaPart, ctx: &mut Ctx<'_>) {
        if part.id.is_none() {
            part.id = Some(ctx.shared.random.make("g"));
        }
        let id = part.id.clone();
        if ctx.shared.spool_bytes.saturating_add(part.data.len() as u64) > ctx.shared.settings.spool_bytes {
            let name = id.clone().unwrap_or_default();
            self.with_series(ctx, |series, ctx, discard| series.end(&name, ctx.now, discard));
            let problem = Problem::new(
                ErrorCode::TooBig,
                "the server holds too many unfinished uploads: send the file again later",
            )
            .with_id(id);
            self.refuse(&problem, ctx);
            return;
        }
        let spool = ctx.shared.spool();
        let step = self.with_series(ctx, |series, ctx, discard| series.part(&part, spool, ctx.now, discard));
        match step {
            Ok(Step::Ignore) => {}
            Ok(Step::Keep { spool }) => ctx.out.push(Action::Spool { spool, part: Box::new(part) }),
            Ok(Step::Complete { spool, head, .. }) => {
                ctx.out.push(Action::Spool { spool, part: Box::new(part) });
                self.busy.assembling.insert(spool, id);
                self.busy.held.push_back(Held::File(spool));
                ctx.out.push(Action::Assemble { device: self.no, spool, head });
            }
            Err(problem) => self.refuse(&problem, ctx),
        }
    }

    /// A file is complete in the media folder, or is not what it said.
    pub(crate) fn assembled(&mut self, spool: SpoolNo, done: Result<MediaDone, Problem>, ctx: &mut Ctx<'_>) {
        let Some(id) = self.busy.assembling.remove(&spool) else {
            // The device was forgotten in memory meanwhile; the client sends the file again.
            if let Ok(done) = done {
                ctx.out.push(Action::Remove { file: done.file.file });
            }
            return;
        };
        match done {
            Ok(done) => {
                let file = done.file.file.clone();
                let content = file_content(&done.file);
                match self.accept(id, InBody::File { file: done.file }, content, 512, ctx) {
                    Ok(true) => {}
                    Ok(false) => ctx.out.push(Action::Remove { file }),
                    Err(problem) => {
                        ctx.out.push(Action::Remove { file });
                        self.refuse(&problem, ctx);
                    }
                }
            }
            Err(problem) => self.refuse(&problem.with_id(id), ctx),
        }
        self.busy.held.retain(|held| !matches!(held, Held::File(of) if *of == spool));
        while let Some(held) = self.busy.held.pop_front() {
            match held {
                Held::Frame(frame) => self.said_now(frame, ctx),
                file @ Held::File(_) => {
                    self.busy.held.push_front(file);
                    break;
                }
            }
        }
    }

    pub(super) fn series_ticks(&mut self, ctx: &mut Ctx<'_>) {
        if self.busy.series.deadline(ctx.shared.settings.series_idle_ms).is_some_and(|at| ctx.now >= at) {
            let problems = self.with_series(ctx, |series, ctx, discard| {
                series.expire(ctx.shared.settings.series_idle_ms, ctx.now, discard)
            });
            for problem in problems {
                self.refuse(&problem, ctx);
            }
        }
    }

    /// The oldest input has waited too long for an agent: it is not handed over any more, and its person is told.
    pub(super) fn inbox_ticks(&mut self, ctx: &mut Ctx<'_>) {
        for pos in self.busy.inbox.expired(ctx.shared.settings.wait_ms, ctx.now) {
            let what = self.busy.inbox.excerpt(pos);
            self.event_done(pos, ctx);
            if let Some(what) = what {
                self.notice(Say::Expired(what), ctx);
            }
        }
        if self.notice_at.is_some_and(|at| ctx.now >= at) {
            self.notice_at = None;
            if ctx.shared.agent.is_none() && self.busy.inbox.any_waiting() {
                self.noticed_outage = ctx.shared.outage;
                self.notice(Say::AgentAway, ctx);
            }
        }
    }

    /// Something was accepted while no agent is attached: the person is told once an outage, if it lasts.
    pub(crate) fn note_outage(&mut self, ctx: &Ctx<'_>) {
        if ctx.shared.agent.is_none() && self.noticed_outage != ctx.shared.outage && self.notice_at.is_none()
        {
            self.notice_at = Some(ctx.now.max(ctx.shared.away_since + super::NOTICE_AFTER_MS));
        }
    }
}

/// The same file under the same kind, name and caption is the same content.
fn file_content(file: &InFile) -> u64 {
    hash64(&[
        b"file",
        file.kind.as_bytes(),
        file.sha256.as_bytes(),
        file.caption.as_deref().unwrap_or_default().as_bytes(),
    ])
}
