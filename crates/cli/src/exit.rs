//! How the command ends: the one table of exit codes.

use protocol::words::Lang;

/// Something failed that none of the others names.
pub(crate) const FAILURE: u8 = 1;
/// Wrong usage or configuration; clap uses the same.
pub(crate) const USAGE: u8 = 2;
/// The address cannot be listened on.
pub(crate) const LISTEN: u8 = 3;
/// The state directory or what is in it cannot be used.
pub(crate) const STATE: u8 = 4;
/// The gateway cannot be reached, or does not answer.
pub(crate) const CONNECT: u8 = 5;
/// The gateway refuses this token or this device.
pub(crate) const ACCESS: u8 = 6;
/// The device that a message is for is not connected.
pub(crate) const DEVICE_OFFLINE: u8 = 7;

/// One exit code.
pub(crate) struct Code {
    /// It.
    pub(crate) code: u8,
    en: &'static str,
    ru: &'static str,
}

impl Code {
    /// What it means, in a language.
    pub(crate) const fn text(&self, lang: Lang) -> &'static str {
        match lang {
            Lang::En => self.en,
            Lang::Ru => self.ru,
        }
    }
}

/// Every code with its meaning.
pub(crate) const CODES: [Code; 8] = [
    Code { code: 0, en: "done", ru: "готово" },
    Code {
        code: FAILURE,
        en: "failure; check: a rule is not kept; store check: something is damaged; trace: nothing is known of the id",
        ru: "ошибка; check: правило нарушено; store check: что-то повреждено; trace: об этом id ничего не известно",
    },
    Code {
        code: USAGE, en: "wrong usage or configuration", ru: "неверные аргументы или настройки"
    },
    Code {
        code: LISTEN, en: "cannot listen on the address (serve)", ru: "нельзя слушать адрес (serve)"
    },
    Code {
        code: STATE,
        en: "the state directory, or what is in it, cannot be used",
        ru: "каталог состояния или то, что в нём, нельзя использовать",
    },
    Code {
        code: CONNECT,
        en: "the gateway cannot be reached, or does not answer (chat, send, check)",
        ru: "нет связи со шлюзом или ответа от него (chat, send, check)",
    },
    Code {
        code: ACCESS, en: "access denied (chat, send, check)", ru: "доступ запрещён (chat, send, check)"
    },
    Code {
        code: DEVICE_OFFLINE,
        en: "device_offline: the device is not connected (send)",
        ru: "device_offline: устройство не на связи (send)",
    },
];

/// The table for `--help`, in both languages.
pub(crate) fn help() -> String {
    let mut text = "Exit codes / коды выхода:\n".to_owned();
    for code in &CODES {
        text.push_str(&format!("  {}  {} / {}\n", code.code, code.en, code.ru));
    }
    text.push_str(
        "With 2, 3 and 4 starting again helps only after what the message says was done.\n\
         При 2, 3 и 4 повторный запуск поможет только после того, что сказано в сообщении.",
    );
    text
}
