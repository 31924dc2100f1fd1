//! What a device has, for whoever runs the gateway.

use super::Device;
use crate::survey::Survey;

impl Device {
    /// Adds what this device has to a survey.
    pub(crate) fn add_to(&self, survey: &mut Survey) {
        survey.online += u64::from(self.online());
        survey.cards_open += self.busy.cards.open_count() as u64;
        survey.unsent_bytes +=
            self.live.as_ref().map_or(0, |live| live.unsent as u64) + self.busy.queue.bytes as u64;
        survey.unproven_items += self.outbox.len() as u64;
        survey.inputs += self.busy.inbox.len() as u64;
    }
}
