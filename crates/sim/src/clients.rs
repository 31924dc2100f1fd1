//! The devices in the world: connections and what goes wrong with them, what people say and press.

use delivery::{ConnId, Input, Origin};
use protocol::{
    Millis,
    record::hash128,
    server::{AvatarState, ServerFrame},
};

use crate::{
    client::{Expect, Said, Want},
    event::{Conn, Down, Ev},
    plan::AgentKind,
    world::World,
};

/// What is not answered is said again after this, then after twice that, and so on.
const REPEAT_MS: Millis = 8_000;
const LONGEST_REPEAT_MS: Millis = 3_600_000;
/// A dead socket is noticed by the gateway's pings after this.
const SILENCE_MS: Millis = 75_000;
/// A write that stands is given up after this.
const WRITE_MS: Millis = 15_000;

impl World {
    /// Opens a connection, if the gateway is there.
    pub(crate) fn open(&mut self, who: usize) -> Option<ConnId> {
        self.gateway.as_ref()?;
        let conn = self.number();
        let rate = match self.rng.below(4) {
            0 if !self.mended => 5,
            1 => 100,
            _ => 10_000,
        };
        self.conns.insert(
            conn,
            Conn {
                who,
                server: true,
                client: true,
                cut: false,
                closing: false,
                ready_at: None,
                unsent: 0,
                free_at: 0,
                last_down: 0,
                last_up: 0,
                last_seq: 0,
                avatar: AvatarState::Idle,
                typing: false,
                rate,
                text_bytes: std::collections::BTreeMap::new(),
            },
        );
        // The first frame of a connection does not overtake what the same client sent on an older one.
        let last_up =
            self.conns.values().filter(|c| c.who == who).map(|c| c.last_up).max().unwrap_or_default();
        if let Some(c) = self.conns.get_mut(&conn) {
            c.last_up = last_up;
        }
        self.note(|| format!("connection {conn} of {who}"));
        let origin = Origin { loopback: false, address: "192.0.2.1".to_owned(), token: None };
        self.handle(Input::Connected { conn, origin });
        Some(conn)
    }

    /// A client sends a frame.
    pub(crate) fn say_up(&mut self, conn: ConnId, text: String) {
        let way = self.rng.range(0, self.plan.way_ms);
        let now = self.now;
        let Some(c) = self.conns.get_mut(&conn) else { return };
        c.last_up = c.last_up.max(now + way);
        let at = c.last_up;
        self.at_time(at, Ev::Up { conn, text });
    }

    /// Whether something from the client reaches the gateway.
    pub(crate) fn passes(&self, conn: ConnId) -> bool {
        self.conns.get(&conn).is_some_and(|c| c.server && !c.cut)
    }

    pub(crate) fn up(&mut self, conn: ConnId, text: &str) {
        if self.passes(conn) {
            let frame = protocol::client::decode(text);
            self.handle(Input::Frame { conn, bytes: text.len(), frame });
        }
    }

    /// Something reaches the client's side of a connection.
    pub(crate) fn down(&mut self, conn: ConnId, what: Down) {
        let Some(c) = self.conns.get_mut(&conn) else { return };
        if c.cut || !c.client {
            return;
        }
        let who = c.who;
        match what {
            Down::Frame(frame) if who >= self.clients.len() => {
                self.sender_gets(conn, who - self.clients.len(), &frame);
            }
            Down::Frame(frame) => self.drawn(conn, who, &frame),
            Down::Ping(nonce) => {
                let way = self.rng.range(0, self.plan.way_ms);
                let now = self.now;
                if let Some(c) = self.conns.get_mut(&conn) {
                    c.last_up = c.last_up.max(now + way);
                    let at = c.last_up;
                    self.at_time(at, Ev::Pong { conn, nonce });
                }
            }
            Down::Close(code) => {
                let current = self.clients.get(who).is_some_and(|client| client.conn == Some(conn));
                if who < self.clients.len() && current && code != 1012 && code != 1013 {
                    return self.fail(format!("the device of connection {conn} is closed with {code}"));
                }
                self.client_lost(conn);
            }
        }
    }

    fn drawn(&mut self, conn: ConnId, who: usize, frame: &ServerFrame) {
        self.note(|| {
            let text: String = format!("{frame:?}").chars().take(160).collect();
            format!("  device {who} gets {text}")
        });
        let Some(client) = self.clients.get_mut(who) else { return };
        if client.conn != Some(conn) {
            return;
        }
        if let ServerFrame::Message(message) = frame
            && client.chokes(&message.text)
        {
            return self.client_closes(conn, 1009);
        }
        match client.frame(frame) {
            Err(what) => self.fail(what),
            Ok(None) => {}
            Ok(Some(Want::Ready)) => {
                for said in 0..self.clients.get(who).map_or(0, |client| client.said.len()) {
                    self.send_said(who, said);
                }
            }
            Ok(Some(Want::Again { id })) => {
                let said = self.clients.get(who).and_then(|c| c.said.iter().position(|s| s.id == id));
                if let Some(said) = said {
                    self.at(1_000, Ev::Repeat { device: who, said });
                }
            }
            Ok(Some(Want::Withdrawn { id })) => {
                let again = self.rng.range(100, 2_000);
                self.at(again, Ev::Press { device: who, card: id, again: true });
            }
            Ok(Some(Want::Card { id, seconds })) => {
                // Some cards are answered twice, some too late, some never.
                for _ in 0..self.rng.below(3) {
                    let most = if self.rng.percent(70) { 3_000 } else { seconds * 1_200 };
                    let at = self.rng.below(most);
                    self.at(at, Ev::Press { device: who, card: id.clone(), again: false });
                }
            }
        }
    }

    /// A person presses a button.
    pub(crate) fn press(&mut self, device: usize, card: &str, again: bool) {
        let lie = self.rng.percent(5);
        let Some(client) = self.clients.get_mut(device) else { return };
        let (Some(conn), true) = (client.conn, client.ready) else { return };
        let Some(known) = client.cards.get_mut(card) else { return };
        if again && known.done.is_some() {
            return;
        }
        let option = self.rng.pick(&known.options).map(|o| o.id.clone()).unwrap_or_default();
        let option = if lie { "allow_all".to_owned() } else { option };
        known.pressed.push(option.clone());
        self.say_up(conn, format!(r#"{{"t":"prompt","prompt_id":"{card}","option_id":"{option}"}}"#));
    }

    /// A person says something.
    pub(crate) fn say(&mut self, device: usize) {
        let number = self.clients.get(device).map_or(0, |client| client.said.len());
        let id = format!("{device}-{number}");
        let said = if self.rng.percent(15) { self.file(id) } else { self.text(id) };
        if let Some(client) = self.clients.get_mut(device) {
            client.said.push(said);
            self.repeat(device, number);
        }
    }

    fn text(&mut self, id: String) -> Said {
        let plain = format!("text {id}");
        let (what, expect) = match self.plan.agent {
            AgentKind::Scripted => {
                let prefix = format!("re:{id}:");
                (plain, Expect::Prefix(prefix))
            }
            AgentKind::Echo if self.rng.percent(20) => ("!stream 60 6 30".to_owned(), Expect::Nothing),
            AgentKind::Echo => (plain.clone(), Expect::Exactly(vec![plain])),
            AgentKind::Demo => self.command(plain),
        };
        let frame = format!(r#"{{"t":"text","id":"{id}","text":"{what}"}}"#);
        Said { id, what, frames: vec![frame], expect, accepted: false, answered: false, tries: 0 }
    }

    fn command(&mut self, plain: String) -> (String, Expect) {
        let n = self.rng.range(1, 12);
        let command = match self.rng.below(40) {
            0 | 1 => format!("/stream {n}"),
            2 => "/long 150".to_owned(),
            3 | 4 => format!("/approve {n} rm -rf build"),
            5 => "/cards 2".to_owned(),
            6 => "/confirm".to_owned(),
            7 | 8 => "/ask".to_owned(),
            9 => "/ask open".to_owned(),
            10 => "/new".to_owned(),
            11 => "/image".to_owned(),
            12 => "/pictures 3".to_owned(),
            13 => "/stealfile".to_owned(),
            14 => format!("/slow {n}"),
            15 => "/editfail".to_owned(),
            16 => "/fail".to_owned(),
            17 => "/die".to_owned(),
            18 => "/count".to_owned(),
            19 if self.plan.large => "/file 1500000".to_owned(),
            _ => {
                let replies = vec![format!("You said: {plain}"), format!("you chose: {plain}")];
                return (plain, Expect::Exactly(replies));
            }
        };
        (command, Expect::Nothing)
    }

    fn file(&mut self, id: String) -> Said {
        let parts = self.rng.range(1, 3);
        let data: Vec<Vec<u8>> = (0..parts).map(|_| self.rng.bytes().to_vec()).collect();
        let whole = data.concat();
        let expect = match self.plan.agent {
            AgentKind::Scripted => Expect::Prefix(format!("re:{id}:")),
            AgentKind::Echo => {
                Expect::Exactly(vec![format!("caption {id} [document {} bytes]", whole.len())])
            }
            AgentKind::Demo => Expect::Contains(format!("{:032x}", hash128(&[&whole]))),
        };
        let frames = data
            .iter()
            .enumerate()
            .map(|(part, data)| {
                let data = protocol::base64::encode(data);
                format!(
                    r#"{{"t":"media","id":"{id}","kind":"document","mime":"text/plain","filename":"a.txt","caption":"caption {id}","data":"{data}","part":{part},"parts":{parts}}}"#
                )
            })
            .collect();
        Said {
            id,
            what: format!("{:032x}", hash128(&[&whole])),
            frames,
            expect,
            accepted: false,
            answered: false,
            tries: 0,
        }
    }

    /// Says it (again), and looks later whether it was answered.
    pub(crate) fn repeat(&mut self, device: usize, said: usize) {
        let Some(what) = self.clients.get_mut(device).and_then(|c| c.said.get_mut(said)) else { return };
        if !what.wanted() {
            return;
        }
        what.tries += 1;
        let later = (REPEAT_MS << what.tries.min(20)).min(LONGEST_REPEAT_MS);
        self.send_said(device, said);
        self.at(later, Ev::Repeat { device, said });
    }

    fn send_said(&mut self, device: usize, said: usize) {
        let twice = self.rng.percent(10);
        let Some(client) = self.clients.get(device) else { return };
        let (Some(conn), true) = (client.conn, client.ready) else { return };
        let Some(what) = client.said.get(said) else { return };
        if !what.wanted() {
            return;
        }
        let frames = what.frames.clone();
        for _ in 0..=u8::from(twice) {
            for frame in &frames {
                self.say_up(conn, frame.clone());
            }
        }
    }

    // --- connections come and go -------------------------------------------------------------------------------

    pub(crate) fn connect(&mut self, device: usize) {
        if self.clients.get(device).is_none_or(|client| client.conn.is_some()) {
            return;
        }
        let Some(conn) = self.open(device) else {
            let later = self.rng.range(50, 1_000);
            return self.at(later, Ev::Connect { device });
        };
        if let Some(client) = self.clients.get_mut(device) {
            client.connected(conn);
            let hello =
                format!(r#"{{"t":"hello","token":"owner","lang":"en","device":{{"id":"{}"}}}}"#, client.id);
            self.say_up(conn, hello);
        }
    }

    /// The client notices that a connection is gone.
    pub(crate) fn client_lost(&mut self, conn: ConnId) {
        let Some(c) = self.conns.get_mut(&conn) else { return };
        c.client = false;
        let who = c.who;
        if let Some(client) = self.clients.get_mut(who)
            && client.conn == Some(conn)
        {
            client.disconnected();
            let later = self.rng.range(10, 1_500);
            self.at(later, Ev::Connect { device: who });
        }
    }

    /// The client closes its connection in good order.
    pub(crate) fn client_closes(&mut self, conn: ConnId, code: u16) {
        let way = self.rng.range(0, self.plan.way_ms);
        let now = self.now;
        let Some(c) = self.conns.get_mut(&conn) else { return };
        c.last_up = c.last_up.max(now + way);
        let at = c.last_up;
        self.at_time(at, Ev::ServerLost { conn, code: Some(code) });
        self.client_lost(conn);
    }

    /// The gateway notices that a connection is gone.
    pub(crate) fn server_lost(&mut self, conn: ConnId, code: Option<u16>) {
        let Some(c) = self.conns.get_mut(&conn) else { return };
        if !c.server {
            return;
        }
        c.server = false;
        c.cut = c.cut || !c.closing;
        self.handle(Input::Closed { conn, code });
        self.at(self.plan.way_ms, Ev::ClientLost { conn });
    }

    /// Something happens to a device's connection.
    pub(crate) fn cut_fault(&mut self, device: usize) {
        let Some(conn) = self.clients.get(device).and_then(|client| client.conn) else { return };
        let kind = self.rng.below(6);
        self.note(|| format!("fault {kind} on connection {conn}"));
        let (soon, later) = (self.rng.below(500), self.rng.below(500));
        let Some(c) = self.conns.get_mut(&conn) else { return };
        match kind {
            // Cut; both sides notice soon.
            0 | 1 => {
                c.cut = true;
                self.at(soon, Ev::ServerLost { conn, code: None });
                self.at(later, Ev::ClientLost { conn });
            }
            // Half open: the gateway does not notice, the client comes back.
            2 | 3 => {
                c.cut = true;
                let silent = self.rng.range(200, 20_000);
                self.at(SILENCE_MS, Ev::ServerLost { conn, code: None });
                self.at(silent, Ev::ClientLost { conn });
            }
            4 => self.client_closes(conn, 1000),
            // Nothing is read for a while.
            _ => {
                let long = self.rng.range(500, 2 * WRITE_MS);
                c.free_at = c.free_at.max(self.now) + long;
                if long > WRITE_MS {
                    c.cut = true;
                    self.at(WRITE_MS, Ev::ServerLost { conn, code: None });
                    self.at(long, Ev::ClientLost { conn });
                }
            }
        }
    }
}
