//! The agents in the world: the embedded ones, which live and die with the gateway, and the scripted one on its link.

use std::collections::VecDeque;

use agent::{Agent, Flow};
use delivery::{AgentId, Attach, Input};
use protocol::{
    Millis,
    link::{CallValue, CardEnd, Event, FromAgent, Said, ToAgent},
};

use crate::{
    client::Client,
    event::Ev,
    plan::AgentKind,
    scripted::{Scripted, req_of},
    world::World,
};

/// A sign of life comes this often.
const ALIVE_MS: Millis = 5_000;
/// So long after the loss of the link nothing may show that the agent works.
const STICK_MS: Millis = 5_001;
/// So long after its last sign of life.
const SILENT_MS: Millis = 25_000;
/// What it said before it fell silent may still be on its way.
const ON_ITS_WAY_MS: Millis = 200;

/// An agent's process.
pub(crate) struct Proc {
    pub(crate) life: u64,
    body: Body,
    instance: u64,
    /// It has lost its memory under the same instance, and has not been attached since.
    fresh: bool,
    pub(crate) link: Option<AgentId>,
    /// It does nothing until then.
    frozen_until: Millis,
    /// What has reached it meanwhile, in order.
    unread: VecDeque<(AgentId, ToAgent)>,
    /// When the gateway last heard of it.
    heard: Millis,
    last_in: Millis,
    last_out: Millis,
    tick_at: Option<Millis>,
}

enum Body {
    Embedded(Box<dyn Agent>),
    Scripted(Box<Scripted>),
}

/// An answer to a card that an agent was told of.
#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) card: String,
    option: String,
    /// It was withdrawn, or another took its place.
    pub(crate) void: bool,
    taken: bool,
    /// The life that knows that it may act on it.
    may_act: Option<u64>,
}

/// What an agent did on a card.
#[derive(Debug)]
pub(crate) struct Effect {
    pub(crate) card: String,
    pub(crate) life: u64,
    event: u64,
    pub(crate) option: String,
}

impl World {
    fn scripted(&self) -> bool {
        self.plan.agent == AgentKind::Scripted
    }

    /// A process starts.
    pub(crate) fn agent_start(&mut self, same_instance: bool) {
        if self.agent.is_some() {
            return;
        }
        let body = match self.plan.agent {
            _ if self.gateway.is_none() && !self.scripted() => return,
            AgentKind::Demo => Body::Embedded(Box::new(agent::Demo::new())),
            AgentKind::Echo => Body::Embedded(Box::new(agent::Echo::new())),
            AgentKind::Scripted => Body::Scripted(Box::new(Scripted::new(
                self.rng.next(),
                self.lives,
                if self.plan.flood { 12_000 } else { 120 },
            ))),
        };
        if !same_instance {
            self.instance += 1;
        }
        self.lives += 1;
        let life = self.lives;
        self.note(|| format!("the agent starts, life {life}"));
        self.agent = Some(Proc {
            life,
            body,
            instance: self.instance,
            fresh: true,
            link: None,
            frozen_until: 0,
            unread: VecDeque::new(),
            heard: 0,
            last_in: 0,
            last_out: 0,
            tick_at: None,
        });
        self.agent_link(life);
    }

    /// It attaches, if it can.
    pub(crate) fn agent_link(&mut self, life: u64) {
        let Some(proc) = self.agent.as_ref().filter(|proc| proc.life == life && proc.link.is_none()) else {
            return;
        };
        let (instance, fresh) = (format!("instance-{}", proc.instance), proc.fresh);
        if self.gateway.is_none() {
            if self.scripted() {
                let later = self.rng.range(50, 2_000);
                self.at(later, Ev::AgentLink { life });
            }
            return;
        }
        let (link, now) = (self.number(), self.now);
        let attach = Attach { name: "simulated".to_owned(), instance, fresh };
        if let Some(proc) = self.agent.as_mut() {
            proc.link = Some(link);
            proc.fresh = false;
            proc.heard = now;
            proc.last_in = 0;
            proc.last_out = 0;
        }
        self.agent_lost = false;
        self.handle(Input::AgentAttached { agent: link, attach });
        self.at(ALIVE_MS, Ev::AgentAlive { link });
        self.at(SILENT_MS + ON_ITS_WAY_MS, Ev::Silent { life });
        let mut out = Vec::new();
        if let Some(Proc { body: Body::Scripted(agent), .. }) = self.agent.as_mut() {
            agent.reattached(&mut out);
        }
        self.agent_says(out);
        self.plan_tick();
    }

    /// What the agent says goes on its way; without a link it is lost.
    fn agent_says(&mut self, calls: Vec<FromAgent>) {
        if calls.is_empty() {
            return;
        }
        for call in &calls {
            if let FromAgent::Applied { event, ok: true, option_id, .. } = call {
                self.acts(*event, option_id);
            }
        }
        let way =
            if self.scripted() { self.rng.range(0, self.plan.way_ms.min(100)) } else { self.rng.below(2) };
        let now = self.now;
        let Some(proc) = self.agent.as_mut() else { return };
        let Some(link) = proc.link else { return };
        proc.last_out = proc.last_out.max(now + way);
        let at = proc.last_out;
        self.at_time(at, Ev::FromAgent { link, calls });
    }

    /// The agent acts on an answered card.
    fn acts(&mut self, event: u64, option: &str) {
        let Some(life) = self.agent.as_ref().map(|proc| proc.life) else { return };
        let Some(offer) = self.offers.get(&event) else { return };
        let card = offer.card.clone();
        if offer.may_act != Some(life) {
            return self.fail(format!("the agent acts on the answer {event} that it did not take"));
        }
        if offer.option != option {
            return self.fail(format!("card {card}: {} was pressed and {option} is done", offer.option));
        }
        match self.effects.iter().find(|effect| effect.card == card && effect.life == life) {
            // Said again, because it could not be stored.
            Some(effect) if effect.event == event => {}
            Some(_) => self.fail(format!("card {card} is acted on twice")),
            None => self.effects.push(Effect { card, life, event, option: option.to_owned() }),
        }
    }

    /// Calls reach the gateway.
    pub(crate) fn agent_calls(&mut self, link: AgentId, mut calls: Vec<FromAgent>) {
        let now = self.now;
        let Some(proc) = self.agent.as_mut().filter(|proc| proc.link == Some(link)) else { return };
        if self.gateway.is_none() {
            return;
        }
        proc.heard = now;
        for call in &mut calls {
            let req = req_of(call).copied();
            if let Some(req) = req {
                self.calls.insert((link, req), call.clone());
            }
        }
        self.handle(Input::FromAgent { agent: link, calls });
    }

    /// The core tells the agent something.
    pub(crate) fn tell_agent(&mut self, link: AgentId, frame: ToAgent) {
        self.note(|| format!("< agent: {}", format!("{frame:?}").chars().take(300).collect::<String>()));
        let done = match &frame {
            ToAgent::Event(event) => self.event_told(event),
            ToAgent::Result(result) => match self.calls.remove(&(link, result.req)) {
                Some(call) if result.ok => self.result_told(&call, result.value.as_ref()),
                Some(_) => Ok(()),
                None => Err(format!("a result for call {} that nobody made, or a second one", result.req)),
            },
            ToAgent::Request { .. } | ToAgent::Presence { .. } => Ok(()),
        };
        self.check(done);
        let way =
            if self.scripted() { self.rng.range(0, self.plan.way_ms.min(100)) } else { self.rng.below(2) };
        let now = self.now;
        let Some(proc) = self.agent.as_mut().filter(|proc| proc.link == Some(link)) else { return };
        proc.last_in = proc.last_in.max(now + way);
        let at = proc.last_in;
        self.at_time(at, Ev::ToAgent { link, frame: Box::new(frame) });
    }

    /// Whether an event may be told now.
    fn event_told(&mut self, event: &Event) -> Result<(), String> {
        let no = event.event;
        if let Said::Prompt { prompt } = &event.what
            && prompt.outcome == CardEnd::Answered
        {
            let option = prompt.option_id.clone().unwrap_or_default();
            let card =
                self.ledger.cards.get(&prompt.prompt_id).ok_or("an answer of a card that is not on disk")?;
            if card.device != event.device.id {
                return Err(format!("card {} is answered by another device", prompt.prompt_id));
            }
            if self.now > card.deadline {
                return Err(format!("card {} is answered after its time", prompt.prompt_id));
            }
            let client = self.clients.iter().find(|client| client.id == event.device.id);
            if !client.is_some_and(|client| pressed(client, &prompt.prompt_id, &option)) {
                return Err(format!("card {}: {option} was not pressed", prompt.prompt_id));
            }
            if self.ledger.ins.contains_key(&no) {
                return Err(format!("event {no} is an answer and a text"));
            }
            match self.offers.get(&no) {
                Some(offer) if offer.card != prompt.prompt_id || offer.option != option => {
                    return Err(format!("event {no} is two answers"));
                }
                Some(_) => {}
                None => {
                    for offer in self.offers.values_mut() {
                        offer.void = offer.void || offer.card == prompt.prompt_id;
                    }
                    let offer = Offer {
                        card: prompt.prompt_id.clone(),
                        option,
                        void: false,
                        taken: false,
                        may_act: None,
                    };
                    self.offers.insert(no, offer);
                }
            }
            return Ok(());
        }
        let said =
            self.ledger.ins.get(&no).ok_or_else(|| format!("event {no} is told before it is on disk"))?;
        let content = match &event.what {
            Said::Text { text } => text,
            Said::Voice { media } | Said::Media { media } => &media.sha256,
            Said::Prompt { prompt } => &prompt.prompt_id,
        };
        if said.device != event.device.id || said.id != event.id || said.content != *content {
            return Err(format!("event {no} is told as {event:?} and is {said:?} on disk"));
        }
        if self.offers.contains_key(&no) {
            return Err(format!("event {no} is an answer and a text"));
        }
        let earlier = self.ledger.ins.range(..no).find(|(pos, other)| {
            other.device == said.device && !self.handed.contains(pos) && other.at + 86_400_000 > self.now
        });
        if let Some((pos, _)) = earlier {
            return Err(format!("event {no} is told before {pos}"));
        }
        self.handed.insert(no);
        Ok(())
    }

    /// Whether a call may have succeeded now.
    fn result_told(&mut self, call: &FromAgent, value: Option<&CallValue>) -> Result<(), String> {
        match (call, value) {
            (FromAgent::Take { event, .. }, _) => {
                let life = self.agent.as_ref().map(|proc| proc.life);
                let offer = self.offers.get_mut(event).ok_or("an answer is taken that was not offered")?;
                if offer.void && !offer.taken {
                    return Err(format!("the answer {event} is taken though it was withdrawn"));
                }
                if self.ledger.cards.get(&offer.card).is_none_or(|card| card.taken != Some(*event)) {
                    return Err(format!("the answer {event} is taken before that is on disk"));
                }
                offer.taken = true;
                offer.may_act = life;
                Ok(())
            }
            (FromAgent::Prompt { .. }, Some(CallValue::Prompt { prompt_id })) => {
                let known = self.ledger.cards.contains_key(prompt_id);
                if known {
                    Ok(())
                } else {
                    Err(format!("card {prompt_id} is confirmed before it is on disk"))
                }
            }
            (
                FromAgent::Send { device, .. } | FromAgent::Media { device, .. },
                Some(CallValue::Message { message_id, .. }),
            ) => {
                let key = (device.clone(), message_id.clone());
                let large = matches!(call, FromAgent::Media { .. });
                if large || self.ledger.latest.contains_key(&key) || self.ledger.bubbles.contains(&key) {
                    Ok(())
                } else {
                    Err(format!("message {message_id} is confirmed before it is on disk"))
                }
            }
            _ => Ok(()),
        }
    }

    /// Something reaches the agent.
    pub(crate) fn agent_gets(&mut self, link: AgentId, frame: ToAgent) {
        let Some(proc) = self.agent.as_mut().filter(|proc| proc.link == Some(link)) else { return };
        proc.unread.push_back((link, frame));
        self.agent_reads();
    }

    /// It reads what has reached it, unless it hangs.
    fn agent_reads(&mut self) {
        let now = self.now;
        while let Some(proc) = self.agent.as_mut().filter(|proc| proc.frozen_until <= now) {
            let Some((link, frame)) = proc.unread.pop_front() else { return };
            if proc.link != Some(link) {
                continue;
            }
            let mut out = Vec::new();
            let flow = match &mut proc.body {
                Body::Embedded(agent) => agent.handle(frame, now, &mut out),
                Body::Scripted(agent) => {
                    agent.handle(frame, now, &mut out);
                    Flow::On
                }
            };
            self.agent_says(out);
            self.after(flow);
        }
        if let Some(proc) = self.agent.as_ref().filter(|proc| !proc.unread.is_empty()) {
            let (life, until) = (proc.life, proc.frozen_until);
            self.at_time(until, Ev::AgentTick { life });
        }
    }

    pub(crate) fn agent_tick(&mut self, life: u64) {
        let now = self.now;
        let Some(proc) = self.agent.as_mut().filter(|proc| proc.life == life) else { return };
        proc.tick_at = None;
        let mut out = Vec::new();
        let flow = if proc.frozen_until > now {
            Flow::On
        } else {
            match &mut proc.body {
                Body::Embedded(agent) => agent.tick(now, &mut out),
                Body::Scripted(agent) => {
                    agent.tick(now, &mut out);
                    Flow::On
                }
            }
        };
        self.agent_says(out);
        self.after(flow);
        self.agent_reads();
    }

    fn after(&mut self, flow: Flow) {
        if flow == Flow::On {
            return self.plan_tick();
        }
        // Its last words are under way; then it is gone, and another life begins.
        let Some(proc) = self.agent.as_mut() else { return };
        let (link, gone) = (proc.link, proc.last_out);
        self.note(|| "the agent ends itself".to_owned());
        if let Some(link) = link {
            self.at_time(gone, Ev::AgentGone { link, ended: true });
        }
    }

    fn plan_tick(&mut self) {
        let now = self.now;
        let Some(proc) = self.agent.as_mut() else { return };
        let deadline = match &proc.body {
            Body::Embedded(agent) => agent.deadline(),
            Body::Scripted(agent) => agent.deadline(),
        };
        let Some(at) = deadline.map(|at| at.max(now).max(proc.frozen_until)) else { return };
        if proc.tick_at.is_none_or(|planned| planned > at) {
            proc.tick_at = Some(at);
            let life = proc.life;
            self.at_time(at, Ev::AgentTick { life });
        }
    }

    pub(crate) fn agent_alive(&mut self, link: AgentId) {
        let now = self.now;
        let Some(proc) = self.agent.as_mut().filter(|proc| proc.link == Some(link)) else { return };
        if proc.frozen_until <= now {
            proc.heard = now;
            self.handle(Input::AgentAlive { agent: link });
        }
        self.at(ALIVE_MS, Ev::AgentAlive { link });
    }

    /// The core has been told that a link is gone.
    pub(crate) fn agent_noted_lost(&mut self, link: AgentId) {
        let ended = self.agent.as_ref().is_some_and(|proc| proc.link == Some(link));
        if ended {
            // An embedded agent has ended itself.
            self.agent = None;
            let pause = self.rng.below(200);
            self.at(pause, Ev::AgentStart { same_instance: true });
        }
        if self.agent.as_ref().is_none_or(|proc| proc.link.is_none()) {
            self.agent_lost = true;
            self.losses += 1;
            let loss = self.losses;
            self.at(STICK_MS, Ev::NothingSticks { loss });
        }
    }

    /// The core lets go of an agent for a newer one.
    pub(crate) fn detached(&mut self, link: AgentId) {
        if self.agent.as_ref().is_some_and(|proc| proc.link == Some(link)) {
            self.fail("the agent that is attached is let go of");
        }
    }

    /// The gateway has died.
    pub(crate) fn agent_loses_gateway(&mut self) {
        self.calls.clear();
        let scripted = self.scripted();
        let Some(proc) = self.agent.as_mut() else { return };
        proc.link = None;
        let life = proc.life;
        if scripted {
            let later = self.rng.range(50, 3_000);
            self.at(later, Ev::AgentLink { life });
        } else {
            self.agent = None;
        }
    }

    /// Something happens to the scripted agent.
    pub(crate) fn agent_fault(&mut self) {
        if !self.scripted() {
            return;
        }
        let kind = self.rng.below(6);
        self.note(|| format!("fault {kind} of the agent"));
        let (soon, later) = (self.rng.below(1_500), self.rng.range(50, 9_000));
        let now = self.now;
        let long_away = self.plan.long_away;
        let Some(proc) = self.agent.as_mut() else { return };
        let life = proc.life;
        match kind {
            // Its link is lost.
            0 | 1 if !long_away => {
                if let Some(link) = proc.link.take() {
                    self.at(soon, Ev::AgentGone { link, ended: false });
                    self.at(later, Ev::AgentLink { life });
                }
            }
            // It hangs.
            2 if !long_away => {
                proc.frozen_until = now + later * 5;
                self.at(SILENT_MS + ON_ITS_WAY_MS, Ev::Silent { life });
            }
            // It dies. The gateway may notice only when the next one attaches.
            _ => {
                let link = proc.link;
                self.agent = None;
                if let Some(link) = link {
                    self.at(soon, Ev::AgentGone { link, ended: kind == 3 });
                }
                let pause = if long_away { 25 * 3_600_000 } else { later / 3 };
                self.at(pause, Ev::AgentStart { same_instance: kind == 5 });
            }
        }
    }

    /// It was silent for so long, if it still is.
    pub(crate) fn silent(&mut self, life: u64) {
        let still =
            |proc: &&Proc| proc.life == life && proc.link.is_some() && proc.heard + SILENT_MS <= self.now;
        if self.agent.as_ref().filter(still).is_some() {
            self.nothing_works("silent");
        }
    }

    pub(crate) fn mend_agent(&mut self) {
        if let Some(proc) = self.agent.as_mut() {
            proc.frozen_until = proc.frozen_until.min(self.now);
            let life = proc.life;
            self.at(0, Ev::AgentLink { life });
            self.at(0, Ev::AgentTick { life });
        } else {
            self.at(500, Ev::AgentStart { same_instance: true });
        }
    }
}

/// Whether a person pressed this, or something that is taken as the refusal.
fn pressed(client: &Client, card: &str, option: &str) -> bool {
    client.cards.get(card).is_some_and(|card| {
        let unknown = |pressed: &String| card.options.iter().all(|o| o.id != *pressed);
        let refusal = option == "deny" || option == "cancel";
        card.pressed.iter().any(|pressed| pressed == option || (refusal && unknown(pressed)))
    })
}
