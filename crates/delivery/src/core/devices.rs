//! Devices: found by their id, loaded at their first contact.

use protocol::{
    Millis,
    code::{CloseCode, ErrorCode},
    limits,
    link::{CallError, ToAgent},
    problem::Problem,
    record::{DeviceNo, Loaded, hash128},
};
use session::Credential;

use super::{Core, Deferred, Slot};
use crate::{
    device::{Device, Who},
    gate::{self, Stage},
    io::{Action, ConnId, Settings},
    shared::{Ctx, call_error, call_result},
};

/// The target that means the home device, unless a device has this id.
const HOME: &str = "home";

impl Core {
    pub(super) fn here(&self, id: &str) -> Option<DeviceNo> {
        match self.slots.get(id) {
            Some(Slot::Here(no)) => Some(*no),
            _ => None,
        }
    }

    pub(super) fn load(&mut self, device: String, now: Millis, out: &mut Vec<Action>) {
        if !self.slots.contains_key(&device) {
            self.slots.insert(device.clone(), Slot::Loading(Vec::new()));
            out.push(Action::Load { device, since: now.saturating_sub(limits::REMEMBER_MS) });
        }
    }

    /// Does it when the device is here.
    pub(super) fn with_slot(&mut self, device: String, what: Deferred, now: Millis, out: &mut Vec<Action>) {
        match self.slots.get_mut(&device) {
            Some(Slot::Here(no)) => {
                let no = *no;
                self.deferred(no, what, now, out);
            }
            Some(Slot::Loading(waiting)) => waiting.push(what),
            None => {
                self.load(device.clone(), now, out);
                if let Some(Slot::Loading(waiting)) = self.slots.get_mut(&device) {
                    waiting.push(what);
                }
            }
        }
    }

    pub(super) fn deferred(&mut self, device: DeviceNo, what: Deferred, now: Millis, out: &mut Vec<Action>) {
        match what {
            Deferred::Hello(conn, hello) => self.greet(conn, &hello, device, now, out),
            Deferred::Call(agent, call) => {
                // Of an agent that is gone nothing is done: it, or its next life, says it again.
                if self.attached_is(agent) {
                    self.with_device(device, now, out, |device, ctx| device.call(agent, call, ctx));
                }
            }
            Deferred::Deliver(conn, deliver) => {
                let Some(state) = self.conns.get(&conn) else { return };
                let credential = state.credential.as_ref().map_or_else(String::new, |credential| {
                    credential_name(credential, &self.shared.settings)
                });
                let who = Who::Conn {
                    conn,
                    id: deliver.id.clone(),
                    target: deliver.target.clone(),
                    lang: state.lang,
                };
                self.with_device(device, now, out, |device, ctx| {
                    device.deliver_frame(deliver, &credential, who, ctx)
                });
            }
        }
    }

    pub(super) fn loaded(
        &mut self,
        id: String,
        loaded: Result<Option<Loaded>, String>,
        now: Millis,
        out: &mut Vec<Action>,
    ) {
        let Some(Slot::Loading(waiting)) = self.slots.get_mut(&id) else { return };
        let waiting = std::mem::take(waiting);
        let mut ctx = Ctx { now, shared: &mut self.shared, out };
        let device = match loaded {
            Ok(Some(loaded)) => Device::load(id.clone(), &loaded, &mut ctx).map(Some),
            Ok(None) => Ok(None),
            Err(why) => Err(why),
        };
        let device = match device {
            Ok(Some(device)) => device,
            Ok(None) if waiting.iter().any(|what| matches!(what, Deferred::Hello(..))) => {
                let no = self.next_device;
                self.next_device += 1;
                Device::new(no, id.clone(), &ctx)
            }
            Ok(None) => {
                self.slots.remove(&id);
                // A home device of that very name that is not there stands for nobody.
                let home_is_home = self.shared.settings.home_device.as_deref() == Some(HOME);
                for what in waiting {
                    match what {
                        // No device is called so: the home device is meant.
                        Deferred::Deliver(conn, mut deliver) if deliver.target == HOME && !home_is_home => {
                            let Some(home) = self.shared.settings.home_device.clone() else {
                                let why = "target is home, and MOBILE_HOME_DEVICE is not set";
                                self.nobody(Deferred::Deliver(conn, deliver), why, now, out);
                                continue;
                            };
                            deliver.target = home;
                            self.deliver_to(conn, deliver, now, out);
                        }
                        what => self.nobody(what, "no device with this id has ever connected", now, out),
                    }
                }
                return;
            }
            Err(why) => {
                self.slots.remove(&id);
                out.push(Action::Log { warn: true, text: format!("a device cannot be loaded: {why}") });
                for what in waiting {
                    self.not_loaded(what, now, out);
                }
                return;
            }
        };
        let no = device.no;
        self.devices.insert(no, Box::new(device));
        self.slots.insert(id, Slot::Here(no));
        self.with_device(no, now, out, |device, ctx| {
            device.register_events(ctx);
            if ctx.shared.agent.is_some() {
                device.agent_here(ctx);
            } else {
                device.note_outage(ctx);
            }
        });
        for what in waiting {
            self.deferred(no, what, now, out);
        }
    }

    /// The device of a call or a delivery does not exist.
    pub(super) fn nobody(&mut self, what: Deferred, why: &str, now: Millis, out: &mut Vec<Action>) {
        let refusal = Problem::new(ErrorCode::DeviceOffline, why);
        self.unserved(what, &call_error("not_found", why, false), refusal, now, out);
    }

    /// The store could not give the device.
    pub(super) fn not_loaded(&mut self, what: Deferred, now: Millis, out: &mut Vec<Action>) {
        let why = "the gateway cannot read its store";
        self.unserved(
            what,
            &call_error("internal", why, true),
            Problem::new(ErrorCode::Internal, why),
            now,
            out,
        );
    }

    /// Answers what waited for a device that does not come.
    fn unserved(
        &mut self,
        what: Deferred,
        error: &CallError,
        refusal: Problem,
        now: Millis,
        out: &mut Vec<Action>,
    ) {
        match what {
            Deferred::Hello(conn, _) => {
                if self.conns.get(&conn).is_some_and(|state| state.gone) {
                    self.conns.remove(&conn);
                } else {
                    self.refuse_conn(conn, &refusal, CloseCode::Overloaded, now, out);
                }
            }
            Deferred::Call(agent, call) => {
                if let Some(req) = call.req() {
                    let frame = ToAgent::Result(call_result(req, Err(error.clone())));
                    out.push(Action::ToAgent { agent, frame });
                }
            }
            Deferred::Deliver(conn, deliver) => {
                let Some(state) = self.conns.get(&conn) else { return };
                let refusal = refusal.with_id(Some(deliver.id));
                out.push(Action::Send { conn, text: gate::error(&refusal, false, state.lang).encode() });
            }
        }
    }

    pub(super) fn with_device(
        &mut self,
        no: DeviceNo,
        now: Millis,
        out: &mut Vec<Action>,
        f: impl FnOnce(&mut Device, &mut Ctx<'_>),
    ) {
        if let Some(device) = self.devices.get_mut(&no) {
            f(device, &mut Ctx { now, shared: &mut self.shared, out });
            if !std::mem::replace(&mut device.touched, true) {
                self.touched.push(no);
            }
        }
    }

    pub(super) fn on_device(
        &mut self,
        no: DeviceNo,
        now: Millis,
        out: &mut Vec<Action>,
        f: impl FnOnce(&mut Device, &mut Ctx<'_>),
    ) {
        self.with_device(no, now, out, f);
    }

    pub(super) fn on_conn_device(
        &mut self,
        conn: ConnId,
        now: Millis,
        out: &mut Vec<Action>,
        f: impl FnOnce(&mut Device, &mut Ctx<'_>),
    ) {
        let Some(Stage::Open { device }) = self.conns.get(&conn).map(|state| &state.stage) else { return };
        let device = *device;
        if self.is_live(device, conn) {
            self.with_device(device, now, out, f);
        }
    }
}

/// A name that a credential keeps, wherever its token stands in the settings.
fn credential_name(credential: &Credential, settings: &Settings) -> String {
    match credential {
        Credential::Owner => "owner".to_owned(),
        Credential::Device => "device".to_owned(),
        Credential::Deliver(number) => {
            let token = settings.access.deliver.get(*number).map_or("", String::as_str);
            format!("deliver{:032x}", hash128(&[b"credential", &settings.secret, token.as_bytes()]))
        }
    }
}
