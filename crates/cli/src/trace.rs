//! `hermes-mobile trace`: where a message has been, and when.

use std::process::ExitCode;

use ::store::inspect::{Event, Kind, Station, Trace};
use protocol::words::Lang;
use serde_json::{Value, json};

use crate::{exit, fail, print, say, store, time::utc};

const HELP: &str = "\
Finds the id of a text as the client gave it, of a message, of a file or of a card, with the replies whose agent said what
they reply to. Proofs may be written up to a second later. Nothing that people said is printed.
Находит id текста, каким его дал клиент, id сообщения, файла или карточки и те ответы, у которых агент сказал, на что они.
Подтверждения могут записываться на секунду позже. Сказанное людьми не печатается.
Exit codes / коды выхода: 0, 1 (nothing is known of the id / об id ничего не известно), 2, 4";

/// Arguments of `trace`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// Id of a text, message, file or card / id текста, сообщения, файла или карточки
    id: String,
    /// Only on this device; clients give ids of their own / только на этом устройстве: id дают сами клиенты
    #[arg(long)]
    device: Option<String>,
    #[command(flatten)]
    flags: store::Flags,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let lang = args.flags.language.get();
    let found = store::open(&args.flags.state, lang)
        .and_then(|inspector| Ok(inspector.trace(&args.id, args.device.as_deref())?));
    match found {
        Err(failed) => failed.end(lang),
        Ok(traces) if args.flags.json => {
            let printed = print(&format!("{:#}\n", as_json(&args.id, &traces)));
            if traces.is_empty() { ExitCode::from(exit::FAILURE) } else { printed }
        }
        Ok(traces) if traces.is_empty() => fail(
            exit::FAILURE,
            say(
                lang,
                "об этом id ничего не хранится: он не приходил, был отвергнут или старше 7 дней; сверьте --state и --device",
                "nothing is kept of this id: it never came, was refused, or is older than 7 days; check --state and --device",
            ),
        ),
        Ok(traces) => print(&traces.iter().map(|trace| as_text(trace, lang)).collect::<String>()),
    }
}

fn as_json(id: &str, traces: &[Trace]) -> Value {
    let station = |station: &Station| {
        let done = match station.event {
            Event::Accepted { done } | Event::TimeOver { done } => Some(done),
            _ => None,
        };
        json!({
            "at": utc(station.at), "at_ms": station.at, "position": station.pos, "id": station.id,
            "event": station.event.name(), "kind": station.kind.name(), "seq": station.seq,
            "proven": station.proven, "done": done,
        })
    };
    let devices: Vec<Value> = traces
        .iter()
        .map(|trace| {
            let stations: Vec<Value> = trace.stations.iter().map(station).collect();
            json!({ "device": trace.device, "stations": stations })
        })
        .collect();
    json!({ "id": id, "devices": devices })
}

fn as_text(trace: &Trace, lang: Lang) -> String {
    let mut text = format!("{} {}\n", say(lang, "устройство", "device"), trace.device);
    for station in &trace.stations {
        let Station { at, pos, id, .. } = station;
        text.push_str(&format!("  {}  #{pos}  {id}  {}\n", utc(*at), words(station, lang)));
    }
    text
}

fn words(station: &Station, lang: Lang) -> String {
    let what = match (&station.event, station.kind) {
        (Event::Accepted { .. }, Kind::Text) => say(lang, "текст принят, на диске", "text accepted, on disk"),
        (Event::Accepted { .. }, Kind::FileIn) => {
            say(lang, "файл принят, на диске", "file accepted, on disk")
        }
        (Event::Accepted { .. }, _) => say(lang, "ответ на карточку, на диске", "answer to a card, on disk"),
        (Event::TimeOver { .. }, _) => {
            say(lang, "время карточки вышло, агенту скажут", "the card's time is over, the agent is told")
        }
        (Event::Streaming, _) => say(lang, "ответ пишется", "a reply being written"),
        (Event::Message { edit: false }, _) => say(lang, "сообщение сохранено", "message stored"),
        (Event::Message { edit: true }, _) => {
            say(lang, "правка сообщения сохранена", "edit of the message stored")
        }
        (Event::FileOnItsWay, _) => say(lang, "большой файл в пути", "large file on its way"),
        (Event::File, _) => say(lang, "файл для устройства сохранён", "file for the device stored"),
        (Event::Card, _) => say(lang, "карточка сохранена", "card stored"),
        (Event::CardTaken, _) => say(lang, "агент принял ответ", "the agent took the answer"),
        (Event::CardDone { expired: false }, _) => say(lang, "карточка завершена", "card ended"),
        (Event::CardDone { expired: true }, _) => {
            say(lang, "карточка завершена: время вышло", "card ended: its time was over")
        }
        (Event::Delivered { ok: true }, _) => say(lang, "доставлено", "delivered"),
        (Event::Delivered { ok: false }, _) => say(lang, "не доставлено", "not delivered"),
        // Events of a newer store.
        (event, _) => event.name(),
    };
    let done = match station.event {
        Event::Accepted { done: true } | Event::TimeOver { done: true } => say(
            lang,
            "; агент с этим закончил (или срок вышел)",
            "; the agent has done with it (or its time is over)",
        ),
        Event::Accepted { done: false } | Event::TimeOver { done: false } => {
            say(lang, "; агент с этим ещё не закончил", "; the agent has not done with it yet")
        }
        _ => "",
    };
    let proven = match (station.seq, station.proven) {
        (Some(seq), Some(true)) => {
            format!(", seq {seq}{}", say(lang, ": подтверждено устройством", ": proven on the device"))
        }
        (Some(seq), _) => {
            format!(", seq {seq}{}", say(lang, ": ещё не подтверждено", ": not proven yet"))
        }
        _ => String::new(),
    };
    format!("{what}{done}{proven}")
}
