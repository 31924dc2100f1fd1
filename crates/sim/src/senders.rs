//! Connections without a device: cron and command lines that deliver a message and want to know what became of it.

use delivery::ConnId;
use protocol::{
    code::ErrorCode,
    server::{DeliverState, ServerFrame},
};

use crate::{
    event::Ev,
    ledger::{Item, What},
    world::World,
};

/// A message to be delivered, under one id however often it is tried.
#[derive(Debug)]
pub(crate) struct Delivery {
    id: String,
    device: usize,
    pub(crate) text: String,
    queue: bool,
    tries: u64,
    delivered: bool,
    /// It was said to be offline after it had been written or stored: that stands.
    undelivered: bool,
}

impl World {
    pub(crate) fn plan_delivery(&mut self) {
        let number = self.deliveries.len();
        let device = usize::try_from(self.rng.below(self.plan.devices as u64)).unwrap_or_default();
        self.deliveries.push(Delivery {
            id: format!("d{number}"),
            device,
            text: format!("delivered {number}"),
            queue: self.rng.percent(40),
            tries: 0,
            delivered: false,
            undelivered: false,
        });
        for _ in 0..self.rng.range(1, 3) {
            let at = self.rng.below(self.plan.active);
            self.at(at, Ev::Deliver { delivery: number });
        }
    }

    pub(crate) fn deliver(&mut self, delivery: usize) {
        if let Some(delivery) = self.deliveries.get_mut(delivery) {
            delivery.tries += 1;
        }
        let who = self.clients.len() + delivery;
        if let Some(conn) = self.open(who) {
            self.say_up(conn, r#"{"t":"hello","token":"cron"}"#.to_owned());
        }
    }

    /// A frame for such a connection.
    pub(crate) fn sender_gets(&mut self, conn: ConnId, delivery: usize, frame: &ServerFrame) {
        let Some(d) = self.deliveries.get_mut(delivery) else { return };
        let device = self.clients.get(d.device);
        match frame {
            ServerFrame::Ready(_) => {
                let target = device.map(|client| client.id.clone()).unwrap_or_default();
                let queue = if d.queue { r#","offline":"queue""# } else { "" };
                let frame = format!(
                    r#"{{"t":"deliver","id":"{}","target":"{target}","text":"{}"{queue}}}"#,
                    d.id, d.text
                );
                self.say_up(conn, frame);
                return;
            }
            ServerFrame::DeliverDone { state: DeliverState::Delivered, .. } => {
                let shown = |b: &crate::client::Bubble| b.text == d.text && b.last;
                if !device.is_some_and(|client| client.bubbles.iter().any(shown)) {
                    let id = d.id.clone();
                    return self.fail(format!("{id} is said to be delivered and is not on the device"));
                }
            }
            ServerFrame::DeliverDone { .. } => {}
            ServerFrame::Error(error) if error.code == ErrorCode::DeviceOffline => {}
            ServerFrame::Error(error) if error.code == ErrorCode::Internal => {}
            other => return self.fail(format!("a sender gets {other:?}")),
        }
        self.client_closes(conn, 1000);
    }

    /// The gateway says what became of a delivery: the same to everybody who asks.
    pub(crate) fn outcome_told(&mut self, delivery: usize, frame: &ServerFrame) -> Result<(), String> {
        let Some(d) = self.deliveries.get_mut(delivery) else { return Ok(()) };
        match frame {
            ServerFrame::DeliverDone { state: DeliverState::Queued, .. } if !d.queue => {
                Err(format!("{} may not be queued and is", d.id))
            }
            ServerFrame::DeliverDone { state: DeliverState::Delivered, .. } => {
                d.delivered = true;
                if d.undelivered { Err(format!("{} was offline and is delivered", d.id)) } else { Ok(()) }
            }
            ServerFrame::Error(error) if error.code == ErrorCode::DeviceOffline => {
                // Written or stored: the outcome stands.
                let stored = |item: &Item| matches!(&item.what, What::Message { text } if *text == d.text);
                d.undelivered = d.undelivered || self.ledger.items.values().any(stored);
                if d.delivered {
                    Err(format!("{} was delivered and is said to be offline", d.id))
                } else {
                    Ok(())
                }
            }
            _ => Ok(()),
        }
    }
}
