//! Who may come in, and what they may do.

use protocol::{client::Hello, code::ErrorCode, problem::Problem};
use subtle::ConstantTimeEq;

/// What is set up: tokens and devices.
#[derive(Clone, Default)]
pub struct Access {
    /// `MOBILE_TOKEN`: owner-level.
    pub owner: String,
    /// `MOBILE_EXTRA_TOKENS`: `(device, token)`.
    pub extra: Vec<(String, String)>,
    /// `MOBILE_DELIVER_TOKENS`.
    pub deliver: Vec<String>,
    /// `MOBILE_ALLOWED_DEVICES`; empty: any.
    pub allowed: Vec<String>,
    /// `MOBILE_DELIVER_LOOPBACK`: a loopback peer may deliver.
    pub deliver_loopback: bool,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Tokens are never printed.
        f.debug_struct("Access")
            .field("extra", &self.extra.len())
            .field("deliver", &self.deliver.len())
            .finish_non_exhaustive()
    }
}

/// Which token it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    /// `MOBILE_TOKEN`.
    Owner,
    /// A token bound to a device.
    Device,
    /// One of `MOBILE_DELIVER_TOKENS`, by number.
    Deliver(usize),
}

/// Whether a connection may `deliver`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// It may.
    Yes,
    /// It may not.
    No,
}

/// Who came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Token.
    pub credential: Credential,
    /// Device; `None`: only delivers.
    pub device: Option<String>,
    /// The user.
    pub user: String,
    /// The user comes from the token.
    pub proven: bool,
    /// May deliver.
    pub deliver: Right,
}

impl Access {
    /// Checks a `hello` (its token, else `token` of the request) in the order of the protocol.
    ///
    /// # Errors
    /// `auth_failed` or `forbidden`; both end the connection with 1008.
    pub fn check(&self, hello: &Hello, token: Option<&str>, loopback: bool) -> Result<Identity, Problem> {
        let given = hello.token.as_deref().or(token).unwrap_or_default();
        let credential = self
            .credential(given)
            .ok_or_else(|| Problem::new(ErrorCode::AuthFailed, "the token is not known to this server"))?;
        let loopback_deliver = loopback && self.deliver_loopback;
        if matches!(credential, Credential::Deliver(_)) {
            // A token that was made to deliver opens nobody's conversation, whatever device its holder names.
            return Ok(Identity {
                credential,
                device: None,
                user: String::new(),
                proven: false,
                deliver: Right::Yes,
            });
        }
        let Some(device) = hello.device.as_ref() else {
            if credential != Credential::Owner || !loopback {
                return Err(Problem::bad(
                    "device is required: device.id names the device (only a deliver token, or a loopback peer with MOBILE_TOKEN, may leave it out)",
                ));
            }
            let deliver = if loopback_deliver { Right::Yes } else { Right::No };
            return Ok(Identity { credential, device: None, user: String::new(), proven: false, deliver });
        };
        if !self.allowed.is_empty() && !self.allowed.contains(&device.id) {
            return Err(Problem::new(
                ErrorCode::AuthFailed,
                "this device.id is not in MOBILE_ALLOWED_DEVICES",
            ));
        }
        let bound = self.extra.iter().find(|(_, t)| same(t, given)).map(|(d, _)| d.as_str());
        let owned = self.extra.iter().any(|(d, _)| *d == device.id);
        match bound {
            Some(name) if name != device.id => {
                return Err(Problem::new(ErrorCode::Forbidden, "this token is bound to another device.id"));
            }
            None if owned => {
                return Err(Problem::new(ErrorCode::Forbidden, "this device.id is bound to another token"));
            }
            _ => {}
        }
        let proven = bound.is_some();
        let user = if proven {
            device.id.clone()
        } else {
            hello.user_id.clone().unwrap_or_else(|| device.id.clone())
        };
        let deliver =
            if credential == Credential::Owner && loopback_deliver { Right::Yes } else { Right::No };
        Ok(Identity { credential, device: Some(device.id.clone()), user, proven, deliver })
    }

    /// Whether a `hello` (its token, else `token` of the request) names a token that is known here.
    #[must_use]
    pub fn knows(&self, hello: &Hello, token: Option<&str>) -> bool {
        self.credential(hello.token.as_deref().or(token).unwrap_or_default()).is_some()
    }

    /// Every token is compared, in constant time each, so that the time tells nothing about which one was close.
    fn credential(&self, given: &str) -> Option<Credential> {
        let mut found = None;
        for (number, token) in self.deliver.iter().enumerate() {
            if same(token, given) {
                found = Some(Credential::Deliver(number));
            }
        }
        for (_, token) in &self.extra {
            if same(token, given) {
                found = Some(Credential::Device);
            }
        }
        if same(&self.owner, given) {
            found = Some(Credential::Owner);
        }
        found
    }
}

/// An empty token never matches.
fn same(known: &str, given: &str) -> bool {
    !known.is_empty() && bool::from(known.as_bytes().ct_eq(given.as_bytes()))
}
