//! Numbers for whoever runs the gateway: what happened so far, and how things are now. Nothing is decided by them.

use crate::core::Core;

/// What happened since the start; each number only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// What a device said again under an id that was accepted before, and that was therefore ignored.
    pub repeats_from_devices: u64,
    /// Calls of the agent, and deliveries, that were made before.
    pub repeats_from_agents: u64,
    /// Cards whose end is what was pressed.
    pub cards_answered: u64,
    /// Cards whose time was over.
    pub cards_expired: u64,
    /// Cards that ended elsewhere or otherwise: typed, replaced, failed.
    pub cards_elsewhere: u64,
    /// Agents that attached.
    pub agents_attached: u64,
}

/// How it is with the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentState {
    /// Attached, and heard of lately.
    Online,
    /// Attached, and silent for too long.
    Stalled,
    /// None is attached.
    Offline,
}

/// How things are now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Survey {
    /// What happened.
    pub counts: Counts,
    /// The agent.
    pub agent: AgentState,
    /// Devices in memory.
    pub devices: u64,
    /// Those with an open session.
    pub online: u64,
    /// Cards that wait for an answer or for the agent's word.
    pub cards_open: u64,
    /// Bytes for devices that their sockets have not taken: handed over, and queued behind that.
    pub unsent_bytes: u64,
    /// Items that are not proven to be on their device.
    pub unproven_items: u64,
    /// What devices said and the agent has not done with.
    pub inputs: u64,
}

impl Core {
    /// Looks at everything. Takes a time that grows with the number of devices in memory, so it is asked for by whoever
    /// wants to know, and not kept up to date.
    #[must_use]
    pub fn survey(&self) -> Survey {
        let agent = match &self.shared.agent {
            Some(agent) if agent.stalled => AgentState::Stalled,
            Some(_) => AgentState::Online,
            None => AgentState::Offline,
        };
        let mut survey = Survey {
            counts: self.shared.counts,
            agent,
            devices: self.devices.len() as u64,
            online: 0,
            cards_open: 0,
            unsent_bytes: self.conns.values().map(|conn| conn.unsent as u64).sum(),
            unproven_items: 0,
            inputs: 0,
        };
        for device in self.devices.values() {
            device.add_to(&mut survey);
        }
        survey
    }
}
