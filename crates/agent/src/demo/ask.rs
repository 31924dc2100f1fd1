//! What cards look like, and what their outcomes are called.

use protocol::{
    link::{CardEnd, CardOutcome, FromAgent},
    server::{OptionStyle, PromptKind, PromptOption},
};

use super::table::CARD_DEFAULT_SECONDS;

/// Which cards to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    Approve {
        command: String,
        seconds: u64,
    },
    /// So many at once.
    Many(usize),
    Confirm,
    Clarify,
}

/// One card of a job.
#[derive(Debug)]
pub(super) struct Card {
    pub(super) kind: PromptKind,
    /// Before the report of its outcome.
    pub(super) label: String,
    pub(super) at: At,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum At {
    /// Its id is not known yet.
    Asked,
    Open(String),
    /// Answered with "other" by this event; the next text is the answer.
    Waiting(u64),
    Ended,
}

impl Ask {
    pub(super) fn cards(&self) -> Vec<Card> {
        let card = |kind, label| Card { kind, label, at: At::Asked };
        match self {
            Self::Approve { .. } => vec![card(PromptKind::ExecApproval, String::new())],
            Self::Many(n) => {
                (1..=*n).map(|i| card(PromptKind::ExecApproval, format!("{}: ", command(i)))).collect()
            }
            Self::Confirm => vec![card(PromptKind::SlashConfirm, String::new())],
            Self::Clarify => vec![card(PromptKind::Clarify, String::new())],
        }
    }

    pub(super) const fn seconds(&self) -> u64 {
        if let Self::Approve { seconds, .. } = self { *seconds } else { CARD_DEFAULT_SECONDS }
    }

    /// The call for card number `at`, from 0.
    pub(super) fn prompt(&self, event: u64, device: &str, at: usize) -> FromAgent {
        let (kind, text, command, description) = match self {
            Self::Approve { .. } | Self::Many(_) => (
                PromptKind::ExecApproval,
                "May this command run?\nВыполнить эту команду?",
                Some(if let Self::Approve { command, .. } = self {
                    command.clone()
                } else {
                    command(at + 1)
                }),
                Some("A demonstration: nothing is run. / Демонстрация: ничего не выполняется."),
            ),
            Self::Confirm => (PromptKind::SlashConfirm, "Go on?\nПродолжить?", None, None),
            Self::Clarify => (PromptKind::Clarify, "Which colour?\nКакой цвет?", None, None),
        };
        FromAgent::Prompt {
            req: 0,
            key: format!("e{event}/{}", at + 1),
            device: device.to_owned(),
            kind,
            text: text.to_owned(),
            command,
            description: description.map(str::to_owned),
            options: options(kind),
            deadline_seconds: self.seconds(),
        }
    }
}

fn command(i: usize) -> String {
    format!("CMD {i}")
}

const fn choices(kind: PromptKind) -> &'static [(&'static str, &'static str, OptionStyle)] {
    use OptionStyle::{Danger, Primary, Secondary};
    match kind {
        PromptKind::ExecApproval => &[
            ("once", "Once / Один раз", Primary),
            ("session", "This session / В этом разговоре", Secondary),
            ("always", "Always / Всегда", Secondary),
            ("deny", "Decline / Отклонить", Danger),
        ],
        PromptKind::SlashConfirm => &[
            ("once", "Yes / Да", Primary),
            ("always", "Always / Всегда", Secondary),
            ("cancel", "Cancel / Отмена", Danger),
        ],
        PromptKind::Clarify => &[
            ("red", "Red / Красный", Secondary),
            ("green", "Green / Зелёный", Secondary),
            ("blue", "Blue / Синий", Secondary),
            ("other", "Other / Другой", Secondary),
        ],
    }
}

fn options(kind: PromptKind) -> Vec<PromptOption> {
    let option = |&(id, label, style): &(&str, &str, _)| PromptOption {
        id: id.to_owned(),
        label: label.to_owned(),
        style,
        allow_text: kind == PromptKind::Clarify && id == "other",
    };
    choices(kind).iter().map(option).collect()
}

/// What an answer comes to: what was pressed, or the refusal if that was not offered.
pub(super) fn effective(outcome: &CardOutcome) -> String {
    let pressed = outcome.option_id.as_deref().unwrap_or_default();
    match outcome.kind.refusal() {
        Some(refusal) if choices(outcome.kind).iter().all(|(id, ..)| *id != pressed) => refusal.to_owned(),
        _ => pressed.to_owned(),
    }
}

/// What the device is told.
pub(super) fn report(kind: PromptKind, option: &str, text: Option<&str>) -> String {
    match (kind, option) {
        (PromptKind::ExecApproval, "deny") => "denied".to_owned(),
        (PromptKind::ExecApproval, _) => format!("approved: {option}"),
        (PromptKind::SlashConfirm, "cancel") => "cancelled".to_owned(),
        (PromptKind::SlashConfirm, _) => format!("confirmed: {option}"),
        (PromptKind::Clarify, "other") => chosen(text.unwrap_or(option)),
        (PromptKind::Clarify, _) => chosen(option),
    }
}

pub(super) fn chosen(text: &str) -> String {
    format!("you chose: {text}")
}

/// The next text is the answer.
pub(super) fn text_follows(outcome: &CardOutcome) -> bool {
    outcome.kind == PromptKind::Clarify
        && outcome.outcome == CardEnd::Answered
        && outcome.option_id.as_deref() == Some("other")
        && outcome.text.is_none()
}
