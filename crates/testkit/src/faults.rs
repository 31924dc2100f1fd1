//! The faults that a checker of servers must find, made by the [`proxy`](crate::proxy).

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::proxy::{Fault, Msg, Mutant, To};

/// A fault, and the acceptance cases that must fail on it: these and no others.
#[derive(Clone, Copy, Debug)]
pub struct Planted {
    /// What is wrong.
    pub name: &'static str,
    /// How it is made.
    pub fault: Fault,
    /// Ids of cases, in the order of the files.
    pub cases: &'static [&'static str],
}

fn t(value: &Value) -> &str {
    text(value, "t")
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn flag(value: &Value, key: &str) -> bool {
    value.get(key).and_then(Value::as_bool).unwrap_or_default()
}

/// Sets a field, if there is an object at `pointer`.
fn set(value: &mut Value, pointer: &str, key: &str, to: Value) {
    if let Some(object) = value.pointer_mut(pointer).and_then(Value::as_object_mut) {
        object.insert(key.into(), to);
    }
}

fn remove(value: &mut Value, key: &str) {
    if let Some(object) = value.as_object_mut() {
        object.remove(key);
    }
}

/// Changes frames of type `kind` on their way; `change` says whether it did.
fn change(
    way: To,
    kind: &'static str,
    mut change: impl FnMut(&mut Value) -> bool + Send + 'static,
) -> Mutant {
    Box::new(move |to, msg| {
        let Msg::Json(value) = msg else { return None };
        if to != way || t(value) != kind {
            return None;
        }
        let mut value = value.clone();
        change(&mut value).then(|| vec![(to, Msg::Json(value))])
    })
}

/// Drops frames of type `kind` to the client for which `which` is true.
fn lose(kind: &'static str, which: fn(&Value) -> bool) -> Mutant {
    Box::new(move |to, msg| match msg {
        Msg::Json(value) if to == To::Client && t(value) == kind && which(value) => Some(vec![]),
        _ => None,
    })
}

/// Closes with another code, if the last error to the client had this code.
fn close_as(error: &'static str, code: u16, instead: u16) -> Mutant {
    let mut last = String::new();
    Box::new(move |to, msg| match msg {
        Msg::Json(value) if to == To::Client && t(value) == "error" => {
            text(value, "code").clone_into(&mut last);
            None
        }
        Msg::Close(Some(came)) if to == To::Client && *came == code && last == error => {
            Some(vec![(to, Msg::Close(Some(instead)))])
        }
        _ => None,
    })
}

fn chunked(value: &Value) -> bool {
    value.pointer("/chunk/total").and_then(Value::as_u64).is_some_and(|total| total > 1)
}

/// A text with an id that was sent before on this connection gets a new one.
fn forgets_ids() -> Mutant {
    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    let mut count = 0;
    change(To::Server, "text", move |value| {
        let (id, words) = (text(value, "id").to_owned(), text(value, "text").to_owned());
        if id.is_empty() || seen.get(&id) != Some(&words) {
            seen.insert(id, words);
            return false;
        }
        count += 1;
        set(value, "", "id", format!("{id}-{count}").into());
        true
    })
}

/// A redraw of a message that this connection has not seen gets a new id.
fn replays_under_new_id() -> Mutant {
    let mut seen = std::collections::BTreeSet::new();
    change(To::Client, "message", move |value| {
        let id = text(value, "id").to_owned();
        let fresh = seen.insert(id.clone());
        if !fresh || !flag(value, "edit") || !flag(value, "final") {
            return false;
        }
        set(value, "", "id", format!("{id}-again").into());
        true
    })
}

/// Every edit of a stream is a message of its own.
fn stream_in_many_bubbles() -> Mutant {
    let mut count = 0;
    change(To::Client, "message", move |value| {
        if !flag(value, "edit") || flag(value, "final") {
            return false;
        }
        count += 1;
        let id = format!("{}-{count}", text(value, "id"));
        set(value, "", "id", id.into());
        true
    })
}

/// The second part of a file comes before the first.
fn parts_out_of_order() -> Mutant {
    let mut held: Option<Value> = None;
    Box::new(move |to, msg| match msg {
        Msg::Json(value) if to == To::Client && t(value) == "media" && !flag(value, "final") => {
            match held.take() {
                None if value.get("part") == Some(&json!(0)) => {
                    held = Some(value.clone());
                    Some(vec![])
                }
                Some(first) => Some(vec![(to, Msg::Json(value.clone())), (to, Msg::Json(first))]),
                None => None,
            }
        }
        _ => None,
    })
}

/// An unknown frame of the client ends the connection.
fn unknown_closes() -> Mutant {
    Box::new(|to, msg| match msg {
        Msg::Json(value) if to == To::Server && t(value) == "some-new-frame" => {
            Some(vec![(To::Client, Msg::Close(Some(1003)))])
        }
        _ => None,
    })
}

/// A wrong token is refused with a code that means an ordinary end.
fn bad_token_closes_with_1000() -> Mutant {
    let mut bad = false;
    Box::new(move |to, msg| match msg {
        Msg::Json(value) if to == To::Server && t(value) == "hello" => {
            bad = text(value, "token") == "bad-token";
            None
        }
        Msg::Close(Some(1008)) if to == To::Client && bad => Some(vec![(to, Msg::Close(Some(1000)))]),
        _ => None,
    })
}

/// The faults.
pub const FAULTS: &[Planted] = &[
    Planted {
        name: "the session in ready is not made of the device id",
        fault: || {
            change(To::Client, "ready", |v| {
                set(v, "", "session", "mobile:somebody".into());
                true
            })
        },
        cases: &["ready"],
    },
    Planted {
        name: "capabilities say edit:false",
        fault: || {
            change(To::Client, "ready", |v| {
                set(v, "/capabilities", "edit", false.into());
                true
            })
        },
        cases: &["capabilities"],
    },
    Planted {
        name: "a text with a known id reaches the agent again",
        fault: forgets_ids,
        cases: &["same-id-once"],
    },
    Planted {
        name: "the command on a card is shortened",
        fault: || {
            change(To::Client, "prompt", |v| {
                let short: String = text(v, "command").chars().take(6).collect();
                set(v, "", "command", short.into());
                true
            })
        },
        cases: &["card", "card-after-reconnect"],
    },
    Planted {
        name: "prompt_done does not name what took effect",
        fault: || {
            change(To::Client, "prompt_done", |v| {
                let named = text(v, "option_id") == "once" && !flag(v, "expired");
                remove(v, "option_id");
                named
            })
        },
        cases: &["card-answer", "card-answer-twice", "card-after-reconnect"],
    },
    Planted {
        name: "an option that was not offered is an approval",
        fault: || {
            change(To::Server, "prompt", |v| {
                let all = text(v, "option_id") == "allow_all";
                set(v, "", "option_id", "once".into());
                all
            })
        },
        cases: &["card-not-offered"],
    },
    Planted {
        name: "an unknown card is an error",
        fault: || {
            change(To::Client, "prompt_done", |v| {
                let unknown = text(v, "id") == "no-such";
                *v =
                    json!({"t": "error", "code": "bad_frame", "message": "?", "detail": "?", "fatal": false});
                unknown
            })
        },
        cases: &["card-unknown"],
    },
    Planted {
        name: "a card that is shown again after ready carries a seq",
        fault: || {
            change(To::Client, "prompt", |v| {
                let without = v.get("seq").is_none();
                set(v, "", "seq", 1.into());
                without
            })
        },
        cases: &["order-after-ready"],
    },
    Planted {
        name: "the size of a file is wrong",
        fault: || {
            change(To::Client, "media", |v| {
                let size = v.get("size").and_then(Value::as_u64).unwrap_or_default();
                set(v, "", "size", (size + 1).into());
                true
            })
        },
        cases: &["media-down-parts"],
    },
    Planted {
        name: "parts of a file come out of order",
        fault: parts_out_of_order,
        cases: &["media-down-parts", "file-comes-again"],
    },
    Planted {
        name: "each edit of a stream has an id of its own",
        fault: stream_in_many_bubbles,
        cases: &["stream", "edit-fails", "stream-goes-on"],
    },
    Planted {
        name: "a streamed reply has no final frame",
        fault: || {
            change(To::Client, "message", |v| {
                let last = flag(v, "edit") && flag(v, "final") && text(v, "text").starts_with("word1 ");
                set(v, "", "final", false.into());
                last
            })
        },
        cases: &["stream", "stream-goes-on"],
    },
    Planted {
        name: "the last chunk of a message is not final",
        fault: || {
            change(To::Client, "message", |v| {
                let last = chunked(v) && flag(v, "final");
                set(v, "", "final", false.into());
                last
            })
        },
        cases: &[
            "text-of-12000",
            "text-of-emoji",
            "chunks-join",
            "chunk-limit",
            "long-reply-comes-again-whole",
        ],
    },
    Planted {
        name: "white space at the end of a chunk is trimmed",
        fault: || {
            change(To::Client, "message", |v| {
                let trimmed = text(v, "text").trim_end().to_owned();
                set(v, "", "text", trimmed.into());
                chunked(v)
            })
        },
        cases: &["chunks-join", "chunk-limit"],
    },
    Planted {
        name: "what is sent again after a cut has a new id",
        fault: replays_under_new_id,
        cases: &["order-after-ready", "unproven-comes-again", "long-reply-comes-again-whole"],
    },
    Planted {
        name: "the avatar never speaks",
        fault: || lose("avatar", |v| text(v, "state") == "speaking"),
        cases: &["avatar-order", "new-turn-cancels-pause", "idle-after-pause"],
    },
    Planted {
        name: "typing never stops",
        fault: || lose("typing", |v| flag(v, "stop")),
        cases: &["typing-stop", "state-after-ready", "turn-fails"],
    },
    Planted {
        name: "a bad token is closed with 1000",
        fault: bad_token_closes_with_1000,
        cases: &["bad-token"],
    },
    Planted {
        name: "a replaced connection is closed with 1000",
        fault: || close_as("replaced", 4001, 1000),
        cases: &["replaced"],
    },
    Planted {
        name: "rubbish ends with 1008",
        fault: || close_as("bad_frame", 1003, 1008),
        cases: &["rubbish-ends"],
    },
    Planted {
        name: "an unknown frame ends the connection",
        fault: unknown_closes,
        cases: &["unknown-frame"],
    },
    Planted {
        name: "a pong without ts",
        fault: || {
            change(To::Client, "pong", |v| {
                remove(v, "ts");
                true
            })
        },
        cases: &["ping", "ping-any-value"],
    },
    Planted {
        name: "an error that is not fatal has no fatal",
        fault: || {
            change(To::Client, "error", |v| {
                let dropped = !flag(v, "fatal");
                remove(v, "fatal");
                dropped
            })
        },
        cases: &["lockout", "error-shape"],
    },
    Planted {
        name: "a text of one space is accepted",
        fault: || {
            change(To::Server, "text", |v| {
                let blank = text(v, "text") == " ";
                set(v, "", "text", "(nothing)".into());
                blank
            })
        },
        cases: &["empty-text"],
    },
    Planted {
        name: "a text that is too long is a bad_frame",
        fault: || {
            change(To::Client, "error", |v| {
                let long = text(v, "code") == "too_big" && text(v, "id") == "z";
                set(v, "", "code", "bad_frame".into());
                long
            })
        },
        cases: &["long-text"],
    },
    Planted {
        name: "a message that is too long is cut off without an error",
        fault: || lose("error", |v| text(v, "code") == "too_big" && flag(v, "fatal")),
        cases: &["too-long-before-ready", "too-long-after-ready"],
    },
    Planted {
        name: "errors speak English to everybody",
        fault: || {
            change(To::Client, "error", |v| {
                let russian = text(v, "message") == "Пустое сообщение";
                set(v, "", "message", "Empty message".into());
                russian
            })
        },
        cases: &["language-default", "language-of-server"],
    },
    Planted {
        name: "rate_limited does not say when to come back",
        fault: || {
            change(To::Client, "error", |v| {
                let limited = text(v, "code") == "rate_limited";
                remove(v, "retry_after_ms");
                limited
            })
        },
        cases: &["lockout", "frame-rate"],
    },
    Planted {
        name: "a device that is away counts as delivered to",
        fault: || {
            change(To::Client, "error", |v| {
                let offline = text(v, "code") == "device_offline";
                let id = text(v, "id").to_owned();
                *v = json!({"t": "deliver_done", "id": id, "target": "x", "state": "delivered"});
                offline
            })
        },
        cases: &["deliver-offline", "deliver-unproven", "deliver-offline-may-be-tried-again"],
    },
];
