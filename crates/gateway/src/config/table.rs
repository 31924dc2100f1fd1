//! The table of settings.

use std::path::PathBuf;

use protocol::{limits, words::Lang};

use super::{
    AgentChoice,
    settings::{
        Setting, Wrong, because, both, device, number, on_off, optional, setting, size, small, token,
    },
};
use crate::origin::Network;

/// An hour, a day and a week in milliseconds.
const HOUR: u64 = 3_600_000;
const WEEK: u64 = 7 * 24 * HOUR;

/// Every setting, in the order in which they are printed: key, variable, default, what is allowed, what it means, and how a
/// value is taken.
pub static SETTINGS: &[Setting] = &[
    setting(
        "host",
        "MOBILE_HOST",
        "127.0.0.1",
        both("an IP address or a host name of this machine", "IP-адрес или имя этой машины"),
        both("Address to listen on. 127.0.0.1: only this machine; 0.0.0.0: everybody (put TLS in front).", "Адрес, на котором слушать. 127.0.0.1: только эта машина; 0.0.0.0: все (перед ним нужен TLS)."),
        |c, r| {
            c.host = r.one().filter(|h| !h.is_empty()).ok_or(Wrong::NotAllowed)?.to_owned();
            Ok(())
        },
    ).flag("--host"),
    setting(
        "port",
        "MOBILE_PORT",
        "8787",
        both("0 to 65535 (0: any free port)", "от 0 до 65535 (0: любой свободный порт)"),
        both("Port to listen on.", "Порт, на котором слушать."),
        |c, r| {
            c.port = u16::try_from(number(r, 0, 65_535)?).map_err(|_| Wrong::NotAllowed)?;
            Ok(())
        },
    ).flag("--port"),
    setting(
        "state_dir",
        "MOBILE_STATE_DIR",
        "",
        both("a directory that this user may create and write", "каталог, который этот пользователь может создать и в который может писать"),
        both("Directory for everything that is kept. Default: $XDG_STATE_HOME/hermes-mobile, else ~/.local/state/hermes-mobile.", "Каталог для всего, что хранится. По умолчанию $XDG_STATE_HOME/hermes-mobile, иначе ~/.local/state/hermes-mobile."),
        |c, r| {
            // Nobody means the directory that the command happens to be started in.
            c.state_dir = PathBuf::from(r.one().filter(|d| !d.is_empty()).ok_or(Wrong::NotAllowed)?);
            Ok(())
        },
    ).flag("--state"),
    setting(
        "agent",
        "MOBILE_AGENT",
        "demo",
        both("demo, echo, none", "demo, echo, none"),
        both("Embedded agent: demo shows every feature, echo repeats, none lets messages wait.", "Встроенный агент: demo показывает всё, echo повторяет, none: сообщения ждут."),
        |c, r| {
            c.agent = match r.one() {
                Some("demo") => AgentChoice::Demo,
                Some("echo") => AgentChoice::Echo,
                Some("none") => AgentChoice::None,
                _ => return Err(Wrong::NotAllowed),
            };
            Ok(())
        },
    ).flag("--agent"),
    setting(
        "token",
        "MOBILE_TOKEN",
        "",
        both("1 to 512 printable ASCII characters without spaces; 16 or more are wise", "от 1 до 512 печатных знаков ASCII без пробелов; лучше не меньше 16"),
        both("The owner's token, for any device. None: one is made at first start and kept in the state directory.", "Токен владельца, для любого устройства. Не задан: создаётся при первом запуске и хранится в каталоге состояния."),
        |c, r| {
            c.token = optional(r)?.map(token).transpose()?;
            Ok(())
        },
    ).secret(),
    setting(
        "extra_tokens",
        "MOBILE_EXTRA_TOKENS",
        "",
        both("a list device=token, separated by commas, split at the first =, neither half empty", "список устройство=токен через запятую, делится по первому =, обе половины не пустые"),
        both("Tokens bound to one device each.", "Токены, каждый только для одного устройства."),
        |c, r| {
            let mut all = Vec::new();
            for (index, entry) in r.items().into_iter().enumerate() {
                let number = index + 1;
                let (name, secret) =
                    entry.split_once('=').map(|(d, t)| (d.trim(), t.trim())).ok_or_else(|| {
                        because(format!("entry {number} has no ="), format!("в записи {number} нет ="))
                    })?;
                if name.is_empty() {
                    return Err(because(
                        format!("entry {number} has no device before the ="),
                        format!("в записи {number} нет устройства перед ="),
                    ));
                }
                if secret.is_empty() {
                    return Err(because(
                        format!("entry {number} has no token after the ="),
                        format!("в записи {number} нет токена после ="),
                    ));
                }
                all.push((device(name)?, token(secret)?));
            }
            c.extra_tokens = all;
            Ok(())
        },
    ).secret(),
    setting(
        "deliver_tokens",
        "MOBILE_DELIVER_TOKENS",
        "",
        both("a list of tokens, separated by commas", "список токенов через запятую"),
        both("Tokens that may send messages to devices (cron jobs, scripts).", "Токены, которыми можно отправлять сообщения на устройства (cron, скрипты)."),
        |c, r| {
            c.deliver_tokens = r.items().into_iter().map(token).collect::<Result<_, _>>()?;
            Ok(())
        },
    ).secret(),
    setting(
        "metrics_token",
        "MOBILE_METRICS_TOKEN",
        "",
        both("1 to 512 printable ASCII characters without spaces; 16 or more are wise", "от 1 до 512 печатных знаков ASCII без пробелов; лучше не меньше 16"),
        both("Who sends it as a bearer token may read /metrics from other machines. None: only this machine may.", "Кто пришлёт его как Bearer, может читать /metrics с других машин. Не задан: только эта машина."),
        |c, r| {
            c.metrics_token = optional(r)?.map(token).transpose()?;
            Ok(())
        },
    ).secret(),
    setting(
        "allowed_devices",
        "MOBILE_ALLOWED_DEVICES",
        "",
        both("a list of device ids, separated by commas", "список id устройств через запятую"),
        both("Only these devices may connect. Empty: any device that has a token.", "Подключаться могут только эти устройства. Пусто: любое, у которого есть токен."),
        |c, r| {
            c.allowed_devices = r.items().into_iter().map(device).collect::<Result<_, _>>()?;
            // A list that names nobody is a slip (an empty variable inside it); it must not open the door to everybody.
            if c.allowed_devices.is_empty() && !r.is_blank() {
                return Err(Wrong::NotAllowed);
            }
            Ok(())
        },
    ),
    setting(
        "deliver_loopback",
        "MOBILE_DELIVER_LOOPBACK",
        "1",
        both("1 or 0 (also on, off, true, false)", "1 или 0 (также on, off, true, false)"),
        both("A program on this machine may send messages to devices with the owner's token.", "Программа на этой машине может отправлять сообщения на устройства с токеном владельца."),
        |c, r| {
            c.deliver_loopback = on_off(r)?;
            Ok(())
        },
    ),
    setting(
        "trusted_proxies",
        "MOBILE_TRUSTED_PROXIES",
        "",
        both("a list of IP addresses or networks such as 10.0.0.0/8, separated by commas", "список IP-адресов или сетей вида 10.0.0.0/8 через запятую"),
        both("Reverse proxies whose X-Forwarded-For is believed, so that wrong logins are counted for the true client.", "Обратные прокси, чьему X-Forwarded-For можно верить: неверные входы считаются для настоящего клиента."),
        |c, r| {
            let parse = |text: &str| {
                Network::parse(text)
                    .ok_or_else(|| because(format!("{text:?} is no address and no network"), format!("{text:?}: не адрес и не сеть")))
            };
            c.trusted_proxies = r.items().into_iter().map(parse).collect::<Result<_, _>>()?;
            Ok(())
        },
    ),
    setting(
        "home_device",
        "MOBILE_HOME_DEVICE",
        "",
        both("a device id", "id устройства"),
        both("Device that a deliver to `home` goes to.", "Устройство, которому идёт deliver с целью `home`."),
        |c, r| {
            c.home_device = optional(r)?.map(device).transpose()?;
            Ok(())
        },
    ),
    setting(
        "avatar_url",
        "MOBILE_AVATAR_URL",
        "",
        both("a URL, at most 2,000 characters", "URL не длиннее 2000 знаков"),
        both("Picture of the agent, told to every app.", "Картинка агента, сообщается каждому приложению."),
        |c, r| {
            let url = r.one().filter(|u| u.chars().count() <= 2_000).ok_or(Wrong::NotAllowed)?;
            c.avatar_url = url.to_owned();
            Ok(())
        },
    ),
    setting(
        "lang",
        "MOBILE_LANG",
        "ru",
        both("ru or en", "ru или en"),
        both("Language of messages for people when the app names none.", "Язык сообщений для людей, если приложение его не назвало."),
        |c, r| {
            c.lang = r.one().and_then(Lang::from_tag).ok_or(Wrong::NotAllowed)?;
            Ok(())
        },
    ),
    setting(
        "chunk_limit",
        "MOBILE_CHUNK_LIMIT",
        "2000",
        both("100 to 100000 characters", "от 100 до 100000 знаков"),
        both("A longer message goes out in chunks of at most so many characters.", "Более длинное сообщение идёт частями не длиннее этого числа знаков."),
        |c, r| {
            c.chunk_limit = size(r, 100, 100_000)?;
            Ok(())
        },
    ),
    setting(
        "idle_after_ms",
        "MOBILE_IDLE_AFTER_MS",
        "1500",
        both("0 to 600000 milliseconds", "от 0 до 600000 миллисекунд"),
        both("The avatar goes from speaking to idle after this pause.", "Через эту паузу аватар переходит из speaking в idle."),
        |c, r| {
            c.idle_after_ms = number(r, 0, 600_000)?;
            Ok(())
        },
    ),
    setting(
        "rate_limits",
        "MOBILE_RATE_LIMITS",
        "on",
        both("on or off", "on или off"),
        both("off: no limits of rate and no lock-out, for load tests.", "off: без ограничений частоты и без блокировки, для нагрузочных проверок."),
        |c, r| {
            c.rate_limits = on_off(r)?;
            Ok(())
        },
    ),
    setting(
        "frames_per_second",
        "MOBILE_FRAMES_PER_SECOND",
        "100",
        both("0 to 1000000 (0: no limit)", "от 0 до 1000000 (0: без ограничения)"),
        both("Frames a second that one device may send for long.", "Сколько кадров в секунду устройство может присылать постоянно."),
        |c, r| {
            c.frames_per_second = small(r, 0, 1_000_000)?;
            Ok(())
        },
    ),
    setting(
        "frames_burst",
        "MOBILE_FRAMES_BURST",
        "1000",
        both("1 to 1000000", "от 1 до 1000000"),
        both("Frames that one device may send at once.", "Сколько кадров устройство может прислать сразу."),
        |c, r| {
            c.frames_burst = small(r, 1, 1_000_000)?;
            Ok(())
        },
    ),
    setting(
        "bytes_per_second",
        "MOBILE_BYTES_PER_SECOND",
        "4194304",
        both("0, or 16384 to 10000000000 bytes (0: no limit)", "0 или от 16384 до 10000000000 байт (0: без ограничения)"),
        both("Over this rate (after 16 MiB at once) the gateway reads a connection more slowly; it refuses nothing.", "Выше этой скорости (после 16 МиБ сразу) шлюз читает соединение медленнее, но ничего не отвергает."),
        |c, r| {
            c.bytes_per_second = number(r, 0, 10_000_000_000)?;
            if (1..16_384).contains(&c.bytes_per_second) {
                return Err(Wrong::NotAllowed);
            }
            Ok(())
        },
    ),
    setting(
        "lockout_after",
        "MOBILE_LOCKOUT_AFTER",
        "10",
        both("0 to 1000000 (0: never)", "от 0 до 1000000 (0: никогда)"),
        both("Wrong logins of one address after which it is locked out for a while.", "После стольких неверных входов адрес на время блокируется."),
        |c, r| {
            c.lockout_after = small(r, 0, 1_000_000)?;
            Ok(())
        },
    ),
    setting(
        "lockout_ms",
        "MOBILE_LOCKOUT_MS",
        "60000",
        both("1000 to 86400000 milliseconds", "от 1000 до 86400000 миллисекунд"),
        both("How long an address is locked out.", "На сколько блокируется адрес."),
        |c, r| {
            c.lockout_ms = number(r, 1_000, 24 * HOUR)?;
            Ok(())
        },
    ),
    setting(
        "ping_interval_ms",
        "MOBILE_PING_INTERVAL_MS",
        "25000",
        both("100 to 3600000 milliseconds", "от 100 до 3600000 миллисекунд"),
        both("The gateway pings every connection so often.", "Так часто шлюз пингует каждое соединение."),
        |c, r| {
            c.ping_interval_ms = number(r, 100, HOUR)?;
            Ok(())
        },
    ),
    setting(
        "silent_after_ms",
        "MOBILE_SILENT_AFTER_MS",
        "75000",
        both("200 to 86400000 milliseconds, longer than the ping interval", "от 200 до 86400000 миллисекунд, больше интервала пингов"),
        both("A connection from which no byte came for so long is closed.", "Соединение, от которого столько времени нет ни байта, закрывается."),
        |c, r| {
            c.silent_after_ms = number(r, 200, 24 * HOUR)?;
            Ok(())
        },
    ),
    setting(
        "hello_timeout_ms",
        "MOBILE_HELLO_TIMEOUT_MS",
        "10000",
        both("100 to 600000 milliseconds", "от 100 до 600000 миллисекунд"),
        both("The first frame must come within this time.", "Первый кадр должен прийти за это время."),
        |c, r| {
            c.hello_timeout_ms = number(r, 100, 600_000)?;
            Ok(())
        },
    ),
    setting(
        "series_idle_ms",
        "MOBILE_SERIES_IDLE_MS",
        "120000",
        both("100 to 86400000 milliseconds", "от 100 до 86400000 миллисекунд"),
        both("A file whose next part does not come for so long is dropped.", "Файл, следующая часть которого столько времени не приходит, отбрасывается."),
        |c, r| {
            c.series_idle_ms = number(r, 100, 24 * HOUR)?;
            Ok(())
        },
    ),
    setting(
        "wait_ms",
        "MOBILE_WAIT_MS",
        "86400000",
        both("1000 to 604800000 milliseconds", "от 1000 до 604800000 миллисекунд"),
        both("What a device said waits so long for an agent; then it is dropped with a notice.", "Сообщение ждёт агента столько времени; потом отбрасывается с извещением."),
        |c, r| {
            c.wait_ms = number(r, 1_000, WEEK)?;
            Ok(())
        },
    ),
    setting(
        "take_ms",
        "MOBILE_TAKE_MS",
        "5000",
        both("100 to 600000 milliseconds", "от 100 до 600000 миллисекунд"),
        both("The agent must take an answered card within this time.", "За это время агент должен принять ответ на карточку."),
        |c, r| {
            c.take_ms = number(r, 100, 600_000)?;
            Ok(())
        },
    ),
    setting(
        "deliver_ms",
        "MOBILE_DELIVER_MS",
        "10000",
        both("100 to 600000 milliseconds", "от 100 до 600000 миллисекунд"),
        both("A delivered message must be proven on the device within this time.", "За это время устройство должно подтвердить доставку."),
        |c, r| {
            c.deliver_ms = number(r, 100, 600_000)?;
            Ok(())
        },
    ),
    setting(
        "agent_silent_ms",
        "MOBILE_AGENT_SILENT_MS",
        "20000",
        both("1000 to 600000 milliseconds", "от 1000 до 600000 миллисекунд"),
        both("After so long a silence of the agent, typing and thinking are cleared.", "После такого молчания агента снимаются typing и thinking."),
        |c, r| {
            c.agent_silent_ms = number(r, 1_000, 600_000)?;
            Ok(())
        },
    ),
    setting(
        "write_timeout_ms",
        "MOBILE_WRITE_TIMEOUT_MS",
        "15000",
        both("100 to 600000 milliseconds", "от 100 до 600000 миллисекунд"),
        both("A write that stands still for so long closes the connection (1013).", "Запись, которая столько времени стоит, закрывает соединение (1013)."),
        |c, r| {
            c.write_timeout_ms = number(r, 100, 600_000)?;
            Ok(())
        },
    ),
    setting(
        "queue_bytes",
        "MOBILE_QUEUE_BYTES",
        "4194304",
        both("1048576 to 1073741824 bytes", "от 1048576 до 1073741824 байт"),
        both("Most bytes queued for one slow device before its connection is closed (1013).", "Сколько байт может ждать одно медленное устройство, прежде чем его соединение закроют (1013)."),
        |c, r| {
            // At least one frame of the largest size and what stands beside it.
            c.queue_bytes = size(r, 1024 * 1024, 1024 * 1024 * 1024)?;
            Ok(())
        },
    ),
    setting(
        "spool_bytes",
        "MOBILE_SPOOL_BYTES",
        "536870912",
        both("8388608 to 1000000000000 bytes", "от 8388608 до 1000000000000 байт"),
        both("Most bytes on disk in unfinished files of all devices.", "Сколько байт на диске могут занимать незаконченные файлы всех устройств."),
        |c, r| {
            c.spool_bytes = number(r, limits::FILE_BYTES as u64, 1_000_000_000_000)?;
            Ok(())
        },
    ),
    setting(
        "inflight_bytes",
        "MOBILE_INFLIGHT_BYTES",
        "67108864",
        both("16777216 to 4294967295 bytes", "от 16777216 до 4294967295 байт"),
        both("Most bytes of large frames in memory at once; further connections wait.", "Сколько байт больших кадров может быть в памяти сразу; остальные соединения ждут."),
        |c, r| {
            // The largest frame must fit.
            c.inflight_bytes = size(r, limits::FRAME_AFTER_READY as u64, u64::from(u32::MAX))?;
            Ok(())
        },
    ),
    setting(
        "drain_ms",
        "MOBILE_DRAIN_MS",
        "10000",
        both("100 to 600000 milliseconds", "от 100 до 600000 миллисекунд"),
        both("A stop takes at most so long; the closes are spread over its first half.", "Остановка занимает не больше этого; закрытия распределены по первой половине."),
        |c, r| {
            c.drain_ms = number(r, 100, 600_000)?;
            Ok(())
        },
    ),
    setting(
        "log",
        "MOBILE_LOG",
        "info",
        both("error, warn, info, debug, trace, or a filter such as info,hermes_mobile_gateway=debug", "error, warn, info, debug, trace или фильтр вида info,hermes_mobile_gateway=debug"),
        both("What is logged, on standard error.", "Что писать в журнал, в стандартный поток ошибок."),
        |c, r| {
            c.log = r.one().filter(|l| !l.is_empty()).ok_or(Wrong::NotAllowed)?.to_owned();
            Ok(())
        },
    ),
];
