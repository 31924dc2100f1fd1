//! The agent: its coming and going, and its calls on their way to the device they name.

use protocol::{
    Millis,
    link::{Answer, FromAgent},
    record::DeviceNo,
};

use super::{Core, Deferred, Slot};
use crate::{
    device::Device,
    io::{Action, AgentId, Attach},
    shared::{AgentNow, Ctx, withdrawn},
};

impl Core {
    pub(super) fn attached(&mut self, agent: AgentId, attach: Attach, now: Millis, out: &mut Vec<Action>) {
        if let Some(older) = self.shared.agent.take() {
            out.push(Action::DetachAgent { agent: older.id });
            self.on_all(now, out, |device, ctx| device.agent_gone(false, ctx));
        }
        self.shared.asked.clear();
        self.shared.counts.agents_attached += 1;
        self.shared.agent = Some(AgentNow { id: agent, attach, alive: now, stalled: false });
        self.on_all(now, out, Device::agent_here);
        self.set_agent_timer();
    }

    pub(super) fn detached(&mut self, agent: AgentId, ended: bool, now: Millis, out: &mut Vec<Action>) {
        if !self.attached_is(agent) {
            return;
        }
        self.shared.agent = None;
        self.shared.away_since = now;
        self.shared.outage += 1;
        self.shared.asked.clear();
        self.on_all(now, out, |device, ctx| device.agent_gone(ended, ctx));
        self.set_agent_timer();
    }

    /// Whether this is the agent's present link.
    pub(super) fn attached_is(&self, agent: AgentId) -> bool {
        self.shared.agent.as_ref().is_some_and(|now| now.id == agent)
    }

    pub(super) fn alive(&mut self, agent: AgentId, now: Millis) {
        if let Some(state) = self.shared.agent.as_mut().filter(|state| state.id == agent) {
            state.alive = now;
            state.stalled = false;
        }
        self.set_agent_timer();
    }

    pub(super) fn on_all(
        &mut self,
        now: Millis,
        out: &mut Vec<Action>,
        f: impl Fn(&mut Device, &mut Ctx<'_>),
    ) {
        let mut all: Vec<DeviceNo> = self.devices.keys().copied().collect();
        all.sort_unstable();
        for no in all {
            self.with_device(no, now, out, &f);
        }
    }

    pub(super) fn calls(
        &mut self,
        agent: AgentId,
        calls: Vec<FromAgent>,
        now: Millis,
        out: &mut Vec<Action>,
    ) {
        if !self.attached_is(agent) {
            return;
        }
        self.alive(agent, now);
        for call in calls {
            if let FromAgent::Answer { req, answer } = call {
                if let (Some(asked), Answer::Prompt { state, option_id }) =
                    (self.shared.asked.remove(&req), answer)
                {
                    self.with_device(asked.device, now, out, |device, ctx| {
                        device.card_stands(&asked.prompt_id, state, option_id, ctx);
                    });
                }
                continue;
            }
            self.place(agent, call, now, out);
        }
    }

    /// Gives a call to the device that it is about.
    fn place(&mut self, agent: AgentId, call: FromAgent, now: Millis, out: &mut Vec<Action>) {
        match self.device_of(&call) {
            Ok(Some(no)) if self.devices.contains_key(&no) => {
                self.with_device(no, now, out, |device, ctx| device.call(agent, call, ctx));
            }
            // It may be about one of the devices that are being loaded.
            Ok(_) if self.slots.values().any(|slot| matches!(slot, Slot::Loading(_))) => {
                self.unplaced.push((agent, call));
            }
            Ok(_) => match call {
                // An answer that is not known any more has ended: its card is open again, or closed.
                FromAgent::Take { req, .. } => {
                    Ctx { now, shared: &mut self.shared, out }.result(agent, req, Err(withdrawn()));
                }
                call => {
                    self.nobody(Deferred::Call(agent, call), "event or prompt_id is not known", now, out);
                }
            },
            Err(id) => self.with_slot(id, Deferred::Call(agent, call), now, out),
        }
    }

    /// A device has been loaded, or cannot be: calls that may have been about it.
    pub(super) fn place_again(&mut self, now: Millis, out: &mut Vec<Action>) {
        for (agent, call) in std::mem::take(&mut self.unplaced) {
            if self.attached_is(agent) {
                self.place(agent, call, now, out);
            }
        }
    }

    /// The device of a call: by number, or by an id that is not here yet.
    pub(super) fn device_of(&self, call: &FromAgent) -> Result<Option<DeviceNo>, String> {
        match call {
            FromAgent::Turn { device, .. }
            | FromAgent::Send { device, .. }
            | FromAgent::Edit { device, .. }
            | FromAgent::Status { device, .. }
            | FromAgent::Media { device, .. }
            | FromAgent::Prompt { device, .. }
            | FromAgent::Conversation { device, .. }
            | FromAgent::Device { device, .. } => {
                self.here(device).map_or_else(|| Err(device.clone()), |no| Ok(Some(no)))
            }
            FromAgent::Take { event, .. }
            | FromAgent::Applied { event, .. }
            | FromAgent::Ack { event }
            | FromAgent::Done { event, .. } => Ok(self.shared.events.get(event).copied()),
            FromAgent::PromptClose { prompt_id, .. } => {
                Ok(self.shared.card_ids.read(prompt_id).map(|card| card.device))
            }
            FromAgent::Answer { .. } => Ok(None),
        }
    }
}
