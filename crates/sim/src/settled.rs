//! What must hold when the trouble is over and everything had time to settle.

use std::collections::BTreeMap;

use protocol::{
    Millis, limits,
    record::{DeviceState, hash128},
    server::AvatarState,
};

use crate::{
    client::{Client, Expect},
    ledger::{Item, What},
    plan::AgentKind,
    world::World,
};

impl World {
    pub(crate) fn settled(&mut self) {
        let done = self.all_settled();
        self.check(done);
    }

    fn all_settled(&self) -> Result<(), String> {
        if self.gateway.is_none() || !self.disk.idle() {
            return Err("the gateway or its disk has not come back".to_owned());
        }
        let link = self.agent.as_ref().and_then(|agent| agent.link);
        if let Some(((_, req), call)) = self.calls.iter().find(|((of, _), _)| Some(*of) == link) {
            return Err(format!("call {req} has no result: {call:?}"));
        }
        if let Some((id, _)) = self.ledger.cards.iter().find(|(_, card)| !card.done) {
            return Err(format!("card {id} is open for ever"));
        }
        for client in &self.clients {
            self.device_settled(client).map_err(|what| format!("{}: {what}", client.id))?;
        }
        self.streams()
    }

    fn device_settled(&self, client: &Client) -> Result<(), String> {
        if !client.ready {
            return Err("is not connected".to_owned());
        }
        if client.avatar != AvatarState::Idle || client.typing {
            return Err(format!("still shows {:?}, typing {}", client.avatar, client.typing));
        }
        // A message that is never replayed may have been cut, and one that ended the connection is set aside.
        let chokes = |what: &What| matches!(what, What::Message { text } if client.chokes(text));
        let of = |id: &str, d: &str, item: &Item| d == client.id && item.id == id;
        let once = |id: &str| {
            self.ledger.items.iter().any(|((d, _), i)| of(id, d, i) && (i.once || chokes(&i.what)))
        };
        if let Some(bubble) = client.bubbles.iter().find(|bubble| !bubble.last && !once(&bubble.id)) {
            return Err(format!("message {} is open for ever", bubble.id));
        }
        if let Some((id, _)) = client.cards.iter().find(|(_, card)| card.done.is_none()) {
            return Err(format!("card {id} is still shown"));
        }
        self.answered(client)?;
        self.drawn_once(client)?;
        self.state(client)
    }

    /// Each text is answered exactly once, or its person was told that it expired.
    fn answered(&self, client: &Client) -> Result<(), String> {
        for said in &client.said {
            if client.chokes_on.is_some() && said.id == "0-0" {
                continue;
            }
            if matches!(said.expect, Expect::Nothing) {
                if !said.accepted {
                    return Err(format!("{} was never accepted", said.id));
                }
                continue;
            }
            let replies = client.bubbles.iter().filter(|bubble| said.expect.fits(&bubble.text)).count();
            let expired = client
                .bubbles
                .iter()
                .filter(|bubble| bubble.text.contains("more than a day") && bubble.text.contains(&said.what))
                .count();
            let file_expired = said.frames.iter().any(|f| f.contains(r#""t":"media""#))
                && client.bubbles.iter().any(|b| b.text.contains("more than a day"));
            if replies > 1 || (replies + expired == 0 && !file_expired) {
                return Err(format!("{} is answered {replies} times", said.id));
            }
        }
        Ok(())
    }

    /// The device shows what is on disk, each once and in order.
    fn drawn_once(&self, client: &Client) -> Result<(), String> {
        let mut texts: BTreeMap<&str, (u64, &str)> = BTreeMap::new();
        for ((device, seq), item) in &self.ledger.items {
            if *device != client.id {
                continue;
            }
            match &item.what {
                What::Message { text } if client.chokes(text) => {
                    texts.remove(item.id.as_str());
                }
                What::Message { text } if !item.once => {
                    texts.insert(&item.id, (*seq, text));
                }
                What::File { file, .. } if !item.once => {
                    let data = self.files.media.get(file).ok_or_else(|| format!("file {file} is gone"))?;
                    let shown = client.files.get(&item.id).and_then(|file| file.done);
                    if shown != Some(hash128(&[data])) {
                        return Err(format!("file {} did not arrive", item.id));
                    }
                }
                _ => {}
            }
        }
        for (id, (seq, text)) in &texts {
            let shown: Vec<_> = client.bubbles.iter().filter(|bubble| bubble.id == *id).collect();
            match &shown[..] {
                [bubble] if bubble.text == *text && bubble.seq == Some(*seq) => {}
                [bubble] => return Err(format!("message {id} is {text:?} ({seq}) and shown as {bubble:?}")),
                _ => return Err(format!("message {id} is shown {} times", shown.len())),
            }
        }
        // Those with one state come in the order of their numbers.
        let mut last = 0;
        for bubble in &client.bubbles {
            let known = self.ledger.items.iter().filter(|((d, _), i)| *d == client.id && i.id == bubble.id);
            let once = known.clone().all(|(_, i)| i.once);
            let mut states = known.map(|((_, seq), _)| *seq);
            let Some(first) = states.next() else {
                return Err(format!("message {} is not on disk", bubble.id));
            };
            let streamed = self.ledger.bubbles.contains(&(client.id.clone(), bubble.id.clone()));
            if states.next().is_none() && !streamed && !once {
                if first < last {
                    return Err(format!("message {} ({first}) is shown behind {last}", bubble.id));
                }
                last = first;
            }
        }
        Ok(())
    }

    /// Nothing is left to do for the device.
    fn state(&self, client: &Client) -> Result<(), String> {
        let loaded = self.disk.load(&client.id, 0)?.ok_or("is not in the store")?;
        let state = DeviceState::decode(&loaded.state).map_err(|e| e.to_string())?;
        if state.proven != state.seq {
            return Err(format!("items up to {} of {} are proven", state.proven, state.seq));
        }
        let open = self.ledger.ins.iter().find(|(pos, said)| {
            // A question of the demo agent may wait a day for its answer.
            let question = said.content.starts_with("/ask")
                // An embedded agent does not say again that it is done if only that could not be stored; a later life does.
                || (self.disk_failed && self.plan.agent != AgentKind::Scripted);
            said.device == client.id && !question && **pos > state.done && !state.done_above.contains(pos)
        });
        if let Some((pos, said)) = open {
            return Err(format!("event {pos} is not done: {said:?}"));
        }
        let lost = self.ledger.ins.iter().find(|(pos, said)| {
            said.device == client.id
                && !said.card
                && !self.handed.contains(pos)
                && said.at + limits::WAIT_MS > self.now - SETTLED_MS
        });
        if let Some((pos, _)) = lost {
            return Err(format!("event {pos} was never told to an agent"));
        }
        Ok(())
    }

    /// The text bytes of a streamed reply are at most eight times the reply's.
    fn streams(&self) -> Result<(), String> {
        if self.lives > 1 {
            // Another life may say something shorter under the same key.
            return Ok(());
        }
        let mut written: BTreeMap<(usize, &str), (usize, usize)> = BTreeMap::new();
        for c in self.conns.values() {
            for (id, bytes) in &c.text_bytes {
                let sum = written.entry((c.who, id)).or_default();
                *sum = (sum.0 + 1, sum.1 + bytes);
            }
        }
        for ((who, id), (conns, bytes)) in written {
            let Some(client) = self.clients.get(who) else { continue };
            let text = client.bubbles.iter().find(|bubble| bubble.id == id).map_or(0, |b| b.text.len());
            // One that was closed before its end costs a whole frame for each later edit.
            let states = self.ledger.items.iter().filter(|((d, _), i)| *d == client.id && i.id == id).count();
            if conns == 1 && states == 1 && text > 0 && bytes > 8 * text {
                return Err(format!("message {id} of {text} bytes cost {bytes} bytes of text"));
            }
        }
        Ok(())
    }
}

/// What was said shortly before the end of the trouble has been told since.
const SETTLED_MS: Millis = 0;
