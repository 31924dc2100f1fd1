//! A device as it comes back from the store.

use protocol::record::{Body, DeviceState, Loaded, Mark, Row};
use session::{bubble::Bubble, cards::End};

use super::{Device, Open, write::FileSend};
use crate::{
    inbox::Stage,
    outbox::{Item, id_hash},
    shared::Ctx,
};

impl Device {
    /// A device as the store has it.
    pub(crate) fn load(id: String, loaded: &Loaded, ctx: &mut Ctx<'_>) -> Result<Self, String> {
        let mut device = Self::new(loaded.no, id, ctx);
        device.state = DeviceState::decode(&loaded.state).map_err(|e| e.to_string())?;
        device.committed = ctx.shared.batch_no.saturating_sub(1);
        // Newest first: the first word about an id is the last one.
        for (_, at, mark) in &loaded.marks {
            match Mark::decode(mark) {
                Some(Mark::In { .. }) if crate::mutants::is(crate::mutants::Mutant::IdsForgotten) => {}
                Some(Mark::In { id, content }) => device.seen.put_older(id, content, *at),
                Some(Mark::Out { id, content, once }) => {
                    device.given.put_older(id, content, *at);
                    if once {
                        // Its end, if that was written, has been read already.
                        device.ended.put_older(id, super::deliver::OFFLINE, *at);
                    }
                }
                Some(Mark::Ended { id, ok }) => device.ended.put_older(id, u64::from(ok), *at),
                Some(Mark::Card { key, id }) => {
                    device.busy.card_keys.entry(key).or_insert(id);
                }
                None => {}
            }
        }
        for row in &loaded.live {
            device.restore(row)?;
        }
        if crate::mutants::is(crate::mutants::Mutant::SeqRestarts) {
            device.state.seq = device.state.proven;
        }
        if !device.busy.open.is_empty() {
            device.forget_at = Some(ctx.now + super::CLOSE_AFTER_MS);
        }
        // A large file that was on its way when the gateway stopped gets its place now.
        for file in std::mem::take(&mut device.busy.bulk) {
            device.place_file(file, ctx);
        }
        Ok(device)
    }

    fn restore(&mut self, row: &Row) -> Result<(), String> {
        let item = |id: &str| Item { pos: row.pos, id: id_hash(id), batch: 0, once: None };
        match Body::decode(&row.body).map_err(|e| e.to_string())? {
            Body::In(record) => {
                if row.pos > self.state.done && !self.state.done_above.contains(&row.pos) {
                    self.busy.inbox.add(row.pos, row.at, record, row.body.len(), Stage::Waiting, true);
                }
            }
            Body::Message(message) => {
                self.busy.open.retain(|open| open.bubble.id != message.id);
                self.restore_item(message.seq, Item { once: message.once.then_some(0), ..item(&message.id) });
            }
            Body::Bubble(bubble) => {
                self.busy.open.retain(|open| open.bubble.id != bubble.id);
                self.busy.open.push(Open {
                    of: bubble.of,
                    piece: bubble.piece,
                    pos: row.pos,
                    batch: 0,
                    restored: true,
                    bubble: Bubble::new(bubble.id, bubble.text, bubble.reply_to, bubble.instance, row.at),
                });
            }
            Body::File(file) => match file.seq {
                Some(seq) => {
                    self.busy.bulk.retain(|on_its_way| on_its_way.record.id != file.id);
                    self.restore_item(seq, Item { once: file.once.then_some(0), ..item(&file.id) });
                }
                None => self.busy.bulk.push_back(FileSend::new(file)),
            },
            Body::Card(card) => {
                let seq = card.prompt.seq.unwrap_or_default();
                self.restore_item(seq, item(&card.prompt.id));
                self.busy.cards.open(card, row.pos);
            }
            Body::CardTaken { id, event, option_id } => self.busy.cards.restore_taken(&id, event, option_id),
            Body::CardDone { seq, id, option_id, expired, reason } => {
                self.restore_item(seq, item(&id));
                self.busy.cards.close(&id, End { option_id, expired, reason }, row.at);
            }
            Body::Delivered { .. } => {}
        }
        Ok(())
    }

    fn restore_item(&mut self, seq: u64, item: Item) {
        // The state may be older than the record it was written with only if a later version wrote less of it.
        self.state.seq = self.state.seq.max(seq);
        if seq > self.state.proven {
            self.outbox.add(seq, item);
        }
    }
}
