//! Temporary stand-in until the core is there.
use std::collections::HashSet;
use delivery::{Action, ConnId, Input, Settings};
use protocol::{Millis, client::ClientFrame, code::CloseCode};
pub(crate) struct Core { settings: Settings, conns: HashSet<ConnId> }
impl Core {
    pub(crate) fn new(settings: Settings) -> Self { Self { settings, conns: HashSet::new() } }
    pub(crate) fn start(&mut self, _wake: Vec<String>, _now: Millis, _out: &mut Vec<Action>) {}
    pub(crate) fn deadline(&self) -> Option<Millis> { None }
    pub(crate) fn handle(&mut self, input: Input, _now: Millis, out: &mut Vec<Action>) {
        match input {
            Input::Connected { conn, .. } => { self.conns.insert(conn); }
            Input::Closed { conn, .. } => { self.conns.remove(&conn); }
            Input::Frame { conn, frame: Ok(ClientFrame::Hello(hello)), .. } => {
                match self.settings.access.check(&hello, None, false) {
                    Ok(_) => { out.push(Action::Opened { conn }); out.push(Action::Send { conn, text: "{\"t\":\"ready\"}".into() }); }
                    Err(_) => out.push(Action::Close { conn, code: CloseCode::Denied }),
                }
            }
            Input::Drain => for conn in &self.conns { out.push(Action::Close { conn: *conn, code: CloseCode::Restart }); },
            _ => {}
        }
    }
}
