//! What a seed decides at the start: who takes part, and how bad the weather is.

use protocol::Millis;

use crate::rng::Rng;

/// Which agent answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AgentKind {
    Demo,
    Echo,
    /// The random one, on a link.
    Scripted,
}

/// The plan of a run. Times in milliseconds.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) agent: AgentKind,
    pub(crate) devices: usize,
    /// How long things go wrong; afterwards everything is mended and must settle.
    pub(crate) active: Millis,
    /// Things that each device says.
    pub(crate) texts: u64,
    /// Longest commit.
    pub(crate) disk_ms: u64,
    /// Longest way of a frame.
    pub(crate) way_ms: u64,
    /// Faults of each device's connection.
    pub(crate) cuts: u64,
    pub(crate) crashes: u64,
    /// Times at which the disk is full.
    pub(crate) full: u64,
    pub(crate) agent_faults: u64,
    pub(crate) delivers: u64,
    /// Files of more than one part to a device.
    pub(crate) large: bool,
    /// The agent stays away for more than a day.
    pub(crate) long_away: bool,
    /// The scripted agent says very much.
    pub(crate) flood: bool,
    /// A device's library fails at a certain reply, and closes with 1009.
    pub(crate) chokes: bool,
    pub(crate) chunk_chars: usize,
    pub(crate) queue_bytes: usize,
}

impl Plan {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        let agent = match rng.below(10) {
            0..=3 => AgentKind::Demo,
            4..=5 => AgentKind::Echo,
            _ => AgentKind::Scripted,
        };
        // Most runs have few kinds of trouble at once, so that each kind is also seen alone.
        let mut some = |percent: u64, most: u64| if rng.percent(percent) { rng.range(1, most) } else { 0 };
        let (cuts, crashes, full, agent_faults, delivers) =
            (some(60, 4), some(35, 3), some(15, 2), some(35, 3), some(25, 3));
        let large = rng.percent(2);
        let long_away = agent == AgentKind::Scripted && rng.percent(2);
        let agent_faults = if long_away { agent_faults.max(1) } else { agent_faults };
        Self {
            agent,
            devices: usize::try_from(rng.range(1, 3)).unwrap_or(1),
            active: rng.range(3_000, 40_000),
            texts: rng.range(1, 5),
            disk_ms: *rng.pick(&[1, 5, 20, 300]).unwrap_or(&5),
            way_ms: *rng.pick(&[1, 20, 150, 1_500]).unwrap_or(&20),
            cuts,
            crashes,
            full,
            agent_faults,
            delivers,
            large,
            long_away,
            flood: rng.percent(2),
            chokes: rng.percent(4),
            chunk_chars: *rng.pick(&[8, 40, 2_000]).unwrap_or(&2_000),
            queue_bytes: if large { 4 << 20 } else { 400 << 10 },
        }
    }

    /// When everything is mended.
    pub(crate) const fn mend_at(&self) -> Millis {
        if self.long_away { 26 * 3_600_000 } else { self.active }
    }
}
