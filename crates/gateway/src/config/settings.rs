//! The table of settings.

use std::path::PathBuf;

use protocol::{id, limits, words::Lang};

use super::{AgentChoice, Config, Raw, Secret};
use crate::origin::Network;

/// What is wrong with a value.
#[derive(Debug, PartialEq, Eq)]
pub enum Wrong {
    /// It is not among what is allowed.
    NotAllowed,
    /// Something more exact.
    Because(String),
}

/// One setting. The same name is used everywhere: `key` in the TOML file, `env` in the environment.
pub struct Setting {
    /// Key in the TOML file.
    pub key: &'static str,
    /// Environment variable.
    pub env: &'static str,
    /// Flag of `serve`, for the few that have one.
    pub flag: Option<&'static str>,
    /// Default, as one would write it; empty: none.
    pub default: &'static str,
    /// What is allowed, in words.
    pub allowed: &'static str,
    /// Whether the value must never be printed.
    pub secret: bool,
    /// What it means, English, one line.
    pub en: &'static str,
    /// The same in Russian.
    pub ru: &'static str,
    /// Understands a value and puts it into the configuration.
    pub set: fn(&mut Config, &Raw) -> Result<(), Wrong>,
}

fn number(raw: &Raw, low: u64, high: u64) -> Result<u64, Wrong> {
    let value: u64 = raw.one().and_then(|v| v.parse().ok()).ok_or(Wrong::NotAllowed)?;
    if (low..=high).contains(&value) { Ok(value) } else { Err(Wrong::NotAllowed) }
}

fn small(raw: &Raw, low: u64, high: u32) -> Result<u32, Wrong> {
    number(raw, low, u64::from(high)).and_then(|v| u32::try_from(v).map_err(|_| Wrong::NotAllowed))
}

fn size(raw: &Raw, low: u64, high: u64) -> Result<usize, Wrong> {
    number(raw, low, high).and_then(|v| usize::try_from(v).map_err(|_| Wrong::NotAllowed))
}

fn on_off(raw: &Raw) -> Result<bool, Wrong> {
    match raw.one().map(str::to_ascii_lowercase).as_deref() {
        Some("on" | "1" | "true" | "yes") => Ok(true),
        Some("off" | "0" | "false" | "no") => Ok(false),
        _ => Err(Wrong::NotAllowed),
    }
}

fn token(value: &str) -> Result<Secret, Wrong> {
    // What a header cannot carry could never be sent back by a client.
    if value.is_empty() || value.len() > 512 || !value.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(Wrong::Because("a token must be 1 to 512 printable ASCII characters without spaces".to_owned()));
    }
    Ok(Secret::new(value))
}

fn device(value: &str) -> Result<String, Wrong> {
    if id::valid_device_id(value) {
        Ok(value.to_owned())
    } else {
        Err(Wrong::Because(format!("the device id {value:?} {}", id::DEVICE_ID_RULE)))
    }
}

fn optional(raw: &Raw) -> Result<Option<&str>, Wrong> {
    Ok(Some(raw.one().ok_or(Wrong::NotAllowed)?).filter(|v| !v.is_empty()))
}

/// An hour, a day and a week in milliseconds.
const HOUR: u64 = 3_600_000;
const WEEK: u64 = 7 * 24 * HOUR;

/// Every setting, in the order in which they are printed.
pub static SETTINGS: &[Setting] = &[
    Setting {
        key: "host",
        env: "MOBILE_HOST",
        flag: Some("--host"),
        default: "127.0.0.1",
        allowed: "an IP address or a host name of this machine",
        secret: false,
        en: "Address to listen on. 127.0.0.1: only this machine; 0.0.0.0: everybody (put TLS in front).",
        ru: "Адрес, на котором слушать. 127.0.0.1: только эта машина; 0.0.0.0: все (перед ним нужен TLS).",
        set: |c, r| {
            c.host = r.one().filter(|h| !h.is_empty()).ok_or(Wrong::NotAllowed)?.to_owned();
            Ok(())
        },
    },
    Setting {
        key: "port",
        env: "MOBILE_PORT",
        flag: Some("--port"),
        default: "8787",
        allowed: "0 to 65535 (0: any free port)",
        secret: false,
        en: "Port to listen on.",
        ru: "Порт, на котором слушать.",
        set: |c, r| {
            c.port = u16::try_from(number(r, 0, 65_535)?).map_err(|_| Wrong::NotAllowed)?;
            Ok(())
        },
    },
    Setting {
        key: "state_dir",
        env: "MOBILE_STATE_DIR",
        flag: Some("--state"),
        default: "",
        allowed: "a directory that this user may create and write",
        secret: false,
        en: "Directory for everything that is kept. Default: $XDG_STATE_HOME/hermes-mobile, else ~/.local/state/hermes-mobile.",
        ru: "Каталог для всего, что хранится. По умолчанию $XDG_STATE_HOME/hermes-mobile, иначе ~/.local/state/hermes-mobile.",
        set: |c, r| {
            c.state_dir = PathBuf::from(r.one().ok_or(Wrong::NotAllowed)?);
            Ok(())
        },
    },
    Setting {
        key: "agent",
        env: "MOBILE_AGENT",
        flag: Some("--agent"),
        default: "demo",
        allowed: "demo, echo, none",
        secret: false,
        en: "Embedded agent: demo shows every feature, echo repeats, none lets messages wait.",
        ru: "Встроенный агент: demo показывает всё, echo повторяет, none: сообщения ждут.",
        set: |c, r| {
            c.agent = match r.one() {
                Some("demo") => AgentChoice::Demo,
                Some("echo") => AgentChoice::Echo,
                Some("none") => AgentChoice::None,
                _ => return Err(Wrong::NotAllowed),
            };
            Ok(())
        },
    },
    Setting {
        key: "token",
        env: "MOBILE_TOKEN",
        flag: None,
        default: "",
        allowed: "1 to 512 printable ASCII characters without spaces; 16 or more are wise",
        secret: true,
        en: "The owner's token, for any device. None: one is made at first start and kept in the state directory.",
        ru: "Токен владельца, для любого устройства. Не задан: создаётся при первом запуске и хранится в каталоге состояния.",
        set: |c, r| {
            c.token = optional(r)?.map(token).transpose()?;
            Ok(())
        },
    },
    Setting {
        key: "extra_tokens",
        env: "MOBILE_EXTRA_TOKENS",
        flag: None,
        default: "",
        allowed: "a list device=token, separated by commas, split at the first =, neither half empty",
        secret: true,
        en: "Tokens bound to one device each.",
        ru: "Токены, каждый только для одного устройства.",
        set: |c, r| {
            let mut all = Vec::new();
            for (index, entry) in r.items().into_iter().enumerate() {
                let number = index + 1;
                let (name, secret) =
                    entry.split_once('=').map(|(d, t)| (d.trim(), t.trim())).ok_or_else(|| {
                        Wrong::Because(format!("entry {number} has no ="))
                    })?;
                if name.is_empty() {
                    return Err(Wrong::Because(format!("entry {number} has no device before the =")));
                }
                if secret.is_empty() {
                    return Err(Wrong::Because(format!("entry {number} has no token after the =")));
                }
                all.push((device(name)?, token(secret)?));
            }
            c.extra_tokens = all;
            Ok(())
        },
    },
    Setting {
        key: "deliver_tokens",
        env: "MOBILE_DELIVER_TOKENS",
        flag: None,
        default: "",
        allowed: "a list of tokens, separated by commas",
        secret: true,
        en: "Tokens that may send messages to devices (cron jobs, scripts).",
        ru: "Токены, которыми можно отправлять сообщения на устройства (cron, скрипты).",
        set: |c, r| {
            c.deliver_tokens = r.items().into_iter().map(token).collect::<Result<_, _>>()?;
            Ok(())
        },
    },
    Setting {
        key: "allowed_devices",
        env: "MOBILE_ALLOWED_DEVICES",
        flag: None,
        default: "",
        allowed: "a list of device ids, separated by commas",
        secret: false,
        en: "Only these devices may connect. Empty: any device that has a token.",
        ru: "Подключаться могут только эти устройства. Пусто: любое, у которого есть токен.",
        set: |c, r| {
            c.allowed_devices = r.items().into_iter().map(device).collect::<Result<_, _>>()?;
            Ok(())
        },
    },
    Setting {
        key: "deliver_loopback",
        env: "MOBILE_DELIVER_LOOPBACK",
        flag: None,
        default: "1",
        allowed: "1 or 0 (also on, off, true, false)",
        secret: false,
        en: "A program on this machine may send messages to devices with the owner's token.",
        ru: "Программа на этой машине может отправлять сообщения на устройства с токеном владельца.",
        set: |c, r| {
            c.deliver_loopback = on_off(r)?;
            Ok(())
        },
    },
    Setting {
        key: "trusted_proxies",
        env: "MOBILE_TRUSTED_PROXIES",
        flag: None,
        default: "",
        allowed: "a list of IP addresses or networks such as 10.0.0.0/8, separated by commas",
        secret: false,
        en: "Reverse proxies whose X-Forwarded-For is believed, so that wrong logins are counted for the true client.",
        ru: "Обратные прокси, чьему X-Forwarded-For можно верить: неверные входы считаются для настоящего клиента.",
        set: |c, r| {
            let parse = |text: &str| {
                Network::parse(text)
                    .ok_or_else(|| Wrong::Because(format!("{text:?} is no address and no network")))
            };
            c.trusted_proxies = r.items().into_iter().map(parse).collect::<Result<_, _>>()?;
            Ok(())
        },
    },
    Setting {
        key: "home_device",
        env: "MOBILE_HOME_DEVICE",
        flag: None,
        default: "",
        allowed: "a device id",
        secret: false,
        en: "Device that a deliver to `home` goes to.",
        ru: "Устройство, которому идёт deliver с целью `home`.",
        set: |c, r| {
            c.home_device = optional(r)?.map(device).transpose()?;
            Ok(())
        },
    },
    Setting {
        key: "avatar_url",
        env: "MOBILE_AVATAR_URL",
        flag: None,
        default: "",
        allowed: "a URL, at most 2,000 characters",
        secret: false,
        en: "Picture of the agent, told to every app.",
        ru: "Картинка агента, сообщается каждому приложению.",
        set: |c, r| {
            let url = r.one().filter(|u| u.chars().count() <= 2_000).ok_or(Wrong::NotAllowed)?;
            c.avatar_url = url.to_owned();
            Ok(())
        },
    },
    Setting {
        key: "lang",
        env: "MOBILE_LANG",
        flag: None,
        default: "ru",
        allowed: "ru or en",
        secret: false,
        en: "Language of messages for people when the app names none.",
        ru: "Язык сообщений для людей, если приложение его не назвало.",
        set: |c, r| {
            c.lang = r.one().and_then(Lang::from_tag).ok_or(Wrong::NotAllowed)?;
            Ok(())
        },
    },
    Setting {
        key: "chunk_limit",
        env: "MOBILE_CHUNK_LIMIT",
        flag: None,
        default: "2000",
        allowed: "100 to 100000 characters",
        secret: false,
        en: "A longer message goes out in chunks of at most so many characters.",
        ru: "Более длинное сообщение идёт частями не длиннее этого числа знаков.",
        set: |c, r| {
            c.chunk_limit = size(r, 100, 100_000)?;
            Ok(())
        },
    },
    Setting {
        key: "idle_after_ms",
        env: "MOBILE_IDLE_AFTER_MS",
        flag: None,
        default: "1500",
        allowed: "0 to 600000 milliseconds",
        secret: false,
        en: "The avatar goes from speaking to idle after this pause.",
        ru: "Через эту паузу аватар переходит из speaking в idle.",
        set: |c, r| {
            c.idle_after_ms = number(r, 0, 600_000)?;
            Ok(())
        },
    },
    Setting {
        key: "rate_limits",
        env: "MOBILE_RATE_LIMITS",
        flag: None,
        default: "on",
        allowed: "on or off",
        secret: false,
        en: "off: no limits of rate and no lock-out, for load tests.",
        ru: "off: без ограничений частоты и без блокировки, для нагрузочных проверок.",
        set: |c, r| {
            c.rate_limits = on_off(r)?;
            Ok(())
        },
    },
    Setting {
        key: "frames_per_second",
        env: "MOBILE_FRAMES_PER_SECOND",
        flag: None,
        default: "100",
        allowed: "0 to 1000000 (0: no limit)",
        secret: false,
        en: "Frames a second that one device may send for long.",
        ru: "Сколько кадров в секунду устройство может присылать постоянно.",
        set: |c, r| {
            c.frames_per_second = small(r, 0, 1_000_000)?;
            Ok(())
        },
    },
    Setting {
        key: "frames_burst",
        env: "MOBILE_FRAMES_BURST",
        flag: None,
        default: "1000",
        allowed: "1 to 1000000",
        secret: false,
        en: "Frames that one device may send at once.",
        ru: "Сколько кадров устройство может прислать сразу.",
        set: |c, r| {
            c.frames_burst = small(r, 1, 1_000_000)?;
            Ok(())
        },
    },
    Setting {
        key: "bytes_per_second",
        env: "MOBILE_BYTES_PER_SECOND",
        flag: None,
        default: "4194304",
        allowed: "0, or 16384 to 10000000000 bytes (0: no limit)",
        secret: false,
        en: "Over this rate (after 16 MiB at once) the gateway reads a connection more slowly; it refuses nothing.",
        ru: "Выше этой скорости (после 16 МиБ сразу) шлюз читает соединение медленнее, но ничего не отвергает.",
        set: |c, r| {
            c.bytes_per_second = number(r, 0, 10_000_000_000)?;
            if (1..16_384).contains(&c.bytes_per_second) {
                return Err(Wrong::NotAllowed);
            }
            Ok(())
        },
    },
    Setting {
        key: "lockout_after",
        env: "MOBILE_LOCKOUT_AFTER",
        flag: None,
        default: "10",
        allowed: "0 to 1000000 (0: never)",
        secret: false,
        en: "Wrong logins of one address after which it is locked out for a while.",
        ru: "После стольких неверных входов адрес на время блокируется.",
        set: |c, r| {
            c.lockout_after = small(r, 0, 1_000_000)?;
            Ok(())
        },
    },
    Setting {
        key: "lockout_ms",
        env: "MOBILE_LOCKOUT_MS",
        flag: None,
        default: "60000",
        allowed: "1000 to 86400000 milliseconds",
        secret: false,
        en: "How long an address is locked out.",
        ru: "На сколько блокируется адрес.",
        set: |c, r| {
            c.lockout_ms = number(r, 1_000, 24 * HOUR)?;
            Ok(())
        },
    },
    Setting {
        key: "ping_interval_ms",
        env: "MOBILE_PING_INTERVAL_MS",
        flag: None,
        default: "25000",
        allowed: "100 to 3600000 milliseconds",
        secret: false,
        en: "The gateway pings every connection so often.",
        ru: "Так часто шлюз пингует каждое соединение.",
        set: |c, r| {
            c.ping_interval_ms = number(r, 100, HOUR)?;
            Ok(())
        },
    },
    Setting {
        key: "silent_after_ms",
        env: "MOBILE_SILENT_AFTER_MS",
        flag: None,
        default: "75000",
        allowed: "200 to 86400000 milliseconds, longer than the ping interval",
        secret: false,
        en: "A connection from which no byte came for so long is closed.",
        ru: "Соединение, от которого столько времени нет ни байта, закрывается.",
        set: |c, r| {
            c.silent_after_ms = number(r, 200, 24 * HOUR)?;
            Ok(())
        },
    },
    Setting {
        key: "hello_timeout_ms",
        env: "MOBILE_HELLO_TIMEOUT_MS",
        flag: None,
        default: "10000",
        allowed: "100 to 600000 milliseconds",
        secret: false,
        en: "The first frame must come within this time.",
        ru: "Первый кадр должен прийти за это время.",
        set: |c, r| {
            c.hello_timeout_ms = number(r, 100, 600_000)?;
            Ok(())
        },
    },
    Setting {
        key: "series_idle_ms",
        env: "MOBILE_SERIES_IDLE_MS",
        flag: None,
        default: "120000",
        allowed: "100 to 86400000 milliseconds",
        secret: false,
        en: "A file whose next part does not come for so long is dropped.",
        ru: "Файл, следующая часть которого столько времени не приходит, отбрасывается.",
        set: |c, r| {
            c.series_idle_ms = number(r, 100, 24 * HOUR)?;
            Ok(())
        },
    },
    Setting {
        key: "wait_ms",
        env: "MOBILE_WAIT_MS",
        flag: None,
        default: "86400000",
        allowed: "1000 to 604800000 milliseconds",
        secret: false,
        en: "What a device said waits so long for an agent; then it is dropped with a notice.",
        ru: "Сообщение ждёт агента столько времени; потом отбрасывается с извещением.",
        set: |c, r| {
            c.wait_ms = number(r, 1_000, WEEK)?;
            Ok(())
        },
    },
    Setting {
        key: "take_ms",
        env: "MOBILE_TAKE_MS",
        flag: None,
        default: "5000",
        allowed: "100 to 600000 milliseconds",
        secret: false,
        en: "The agent must take an answered card within this time.",
        ru: "За это время агент должен принять ответ на карточку.",
        set: |c, r| {
            c.take_ms = number(r, 100, 600_000)?;
            Ok(())
        },
    },
    Setting {
        key: "deliver_ms",
        env: "MOBILE_DELIVER_MS",
        flag: None,
        default: "10000",
        allowed: "100 to 600000 milliseconds",
        secret: false,
        en: "A delivered message must be proven on the device within this time.",
        ru: "За это время устройство должно подтвердить доставку.",
        set: |c, r| {
            c.deliver_ms = number(r, 100, 600_000)?;
            Ok(())
        },
    },
    Setting {
        key: "agent_silent_ms",
        env: "MOBILE_AGENT_SILENT_MS",
        flag: None,
        default: "20000",
        allowed: "1000 to 600000 milliseconds",
        secret: false,
        en: "After so long a silence of the agent, typing and thinking are cleared.",
        ru: "После такого молчания агента снимаются typing и thinking.",
        set: |c, r| {
            c.agent_silent_ms = number(r, 1_000, 600_000)?;
            Ok(())
        },
    },
    Setting {
        key: "write_timeout_ms",
        env: "MOBILE_WRITE_TIMEOUT_MS",
        flag: None,
        default: "15000",
        allowed: "100 to 600000 milliseconds",
        secret: false,
        en: "A write that stands still for so long closes the connection (1013).",
        ru: "Запись, которая столько времени стоит, закрывает соединение (1013).",
        set: |c, r| {
            c.write_timeout_ms = number(r, 100, 600_000)?;
            Ok(())
        },
    },
    Setting {
        key: "queue_bytes",
        env: "MOBILE_QUEUE_BYTES",
        flag: None,
        default: "4194304",
        allowed: "1048576 to 1073741824 bytes",
        secret: false,
        en: "Most bytes queued for one slow device before its connection is closed (1013).",
        ru: "Сколько байт может ждать одно медленное устройство, прежде чем его соединение закроют (1013).",
        set: |c, r| {
            // At least one frame of the largest size and what stands beside it.
            c.queue_bytes = size(r, 1024 * 1024, 1024 * 1024 * 1024)?;
            Ok(())
        },
    },
    Setting {
        key: "spool_bytes",
        env: "MOBILE_SPOOL_BYTES",
        flag: None,
        default: "536870912",
        allowed: "8388608 to 1000000000000 bytes",
        secret: false,
        en: "Most bytes on disk in unfinished files of all devices.",
        ru: "Сколько байт на диске могут занимать незаконченные файлы всех устройств.",
        set: |c, r| {
            c.spool_bytes = number(r, limits::FILE_BYTES as u64, 1_000_000_000_000)?;
            Ok(())
        },
    },
    Setting {
        key: "inflight_bytes",
        env: "MOBILE_INFLIGHT_BYTES",
        flag: None,
        default: "67108864",
        allowed: "16777216 to 4294967295 bytes",
        secret: false,
        en: "Most bytes of large frames in memory at once; further connections wait.",
        ru: "Сколько байт больших кадров может быть в памяти сразу; остальные соединения ждут.",
        set: |c, r| {
            // The largest frame must fit.
            c.inflight_bytes = size(r, limits::FRAME_AFTER_READY as u64, u64::from(u32::MAX))?;
            Ok(())
        },
    },
    Setting {
        key: "drain_ms",
        env: "MOBILE_DRAIN_MS",
        flag: None,
        default: "10000",
        allowed: "100 to 600000 milliseconds",
        secret: false,
        en: "A stop takes at most so long; the closes are spread over its first half.",
        ru: "Остановка занимает не больше этого; закрытия распределены по первой половине.",
        set: |c, r| {
            c.drain_ms = number(r, 100, 600_000)?;
            Ok(())
        },
    },
    Setting {
        key: "log",
        env: "MOBILE_LOG",
        flag: None,
        default: "info",
        allowed: "error, warn, info, debug, trace, or a filter such as info,hermes_mobile_gateway=debug",
        secret: false,
        en: "What is logged, on standard error.",
        ru: "Что писать в журнал, в стандартный поток ошибок.",
        set: |c, r| {
            c.log = r.one().filter(|l| !l.is_empty()).ok_or(Wrong::NotAllowed)?.to_owned();
            Ok(())
        },
    },
];
