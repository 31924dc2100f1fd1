//! Which gateway, with which token: what `chat` and `send` have in common.

use std::{fs, path::PathBuf};

use client::{
    net::StartError,
    url::{self, UrlError},
};
use gateway::config;
use protocol::words::Lang;

use crate::say;

/// Flags that name a gateway.
#[derive(Debug, clap::Args)]
pub(crate) struct Target {
    /// Token; better in MOBILE_TOKEN, since other users see arguments [default: the local gateway's token file] / токен
    #[arg(long, env = "MOBILE_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// State directory of the local gateway, for its token file / каталог состояния локального шлюза
    #[arg(long, value_name = "DIR")]
    state: Option<String>,
    /// Configuration file of the local gateway / файл настроек локального шлюза
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Language of all texts: ru, en / язык
    #[arg(long, value_parser = ["ru", "en"])]
    pub(crate) lang: Option<String>,
}

impl Target {
    pub(crate) fn language(&self) -> Lang {
        self.lang.as_deref().and_then(Lang::from_tag).unwrap_or_else(crate::lang)
    }

    /// The token: flag or `MOBILE_TOKEN`, else what the local gateway uses. The local token never goes to another machine.
    ///
    /// # Errors
    /// A text for the person when there is none.
    pub(crate) fn token_for(&self, address: &str, lang: Lang) -> Result<String, String> {
        if let Some(token) = self.token.as_ref().filter(|t| !t.is_empty()) {
            return Ok(token.clone());
        }
        url::websocket(address).map_err(|e| unusable(&e.into(), lang))?;
        if !url::is_local(address) {
            return Err(say(
                lang,
                "нужен токен: --token или MOBILE_TOKEN. На машине шлюза его покажет `hermes-mobile token`",
                "a token is needed: --token or MOBILE_TOKEN. On the gateway's machine `hermes-mobile token` prints it",
            )
            .into());
        }
        let flags: Vec<(&str, String)> = self.state.iter().map(|dir| ("state_dir", dir.clone())).collect();
        let loaded =
            config::load(self.config.as_deref(), std::env::vars_os(), &flags).map_err(|e| e.text(lang))?;
        if let Some(token) = &loaded.config.token {
            return Ok(token.reveal().to_owned());
        }
        let path = gateway::token_file(&loaded.config.state_dir);
        match fs::read_to_string(&path) {
            Ok(text) if !text.trim().is_empty() => Ok(text.trim().to_owned()),
            Ok(_) => Err(format!(
                "{}: {}",
                path.display(),
                say(lang, "файл токена пуст", "the token file is empty")
            )),
            Err(e) => Err(format!(
                "{}: {} ({e}). {}",
                say(lang, "нет токена", "no token"),
                path.display(),
                say(
                    lang,
                    "Запустите шлюз (`hermes-mobile serve`), укажите его каталог (--state) или токен (--token)",
                    "Start the gateway (`hermes-mobile serve`), name its directory (--state) or give a token (--token)",
                )
            )),
        }
    }
}

/// Why a client cannot be started, for a person.
pub(crate) fn unusable(why: &StartError, lang: Lang) -> String {
    match (why, lang) {
        (StartError::Url(UrlError::Scheme(scheme)), Lang::Ru) => {
            format!("{scheme}:// — не адрес шлюза: возьмите ws://, http:// или HOST:PORT")
        }
        (StartError::Url(UrlError::Scheme(scheme)), Lang::En) => {
            format!("{scheme}:// is not an address of a gateway: use ws://, http:// or HOST:PORT")
        }
        (StartError::Url(UrlError::Form), Lang::Ru) => {
            format!("в адресе должны быть хост и порт от 1 до 65535, например {}", url::DEFAULT)
        }
        (StartError::NoTls, Lang::Ru) => {
            "wss:// (TLS) эта версия не умеет: возьмите ws:// или туннель, который снимает TLS".into()
        }
        (StartError::NoRandom, Lang::Ru) => "система не даёт случайных чисел".into(),
        (why, Lang::En) => why.to_string(),
    }
}

/// What a person does about a refusal.
pub(crate) fn refused(
    code: u16,
    error: Option<&client::core::ErrorInfo>,
    device: &str,
    lang: Lang,
) -> String {
    let name = error.map(|e| e.name.as_str()).unwrap_or_default();
    let next = match (code, name) {
        (4001, _) => say(
            lang,
            "под этим --device подключилась другая программа; чтобы работать вместе, возьмите другой --device",
            "another program connected with this --device; use another --device to work side by side",
        ),
        (_, "forbidden") => say(
            lang,
            "этому токену нельзя это устройство или действие; проверьте --device и --token",
            "this token may not use this device or do this; check --device and --token",
        ),
        // `send` names no device: only a token that may deliver is accepted without one.
        (_, "bad_frame") if device.is_empty() => say(
            lang,
            "этим токеном отсюда доставлять нельзя; нужен токен из MOBILE_DELIVER_TOKENS или токен владельца на машине шлюза",
            "this token may not deliver from here; use one of MOBILE_DELIVER_TOKENS, or the owner's on the gateway's machine",
        ),
        (_, "bad_frame") => say(lang, "исправьте то, что названо", "mend what is named"),
        (1008, _) => say(
            lang,
            "токен не подходит (верный показывает `hermes-mobile token` на машине шлюза) или устройство не разрешено",
            "the token is wrong (`hermes-mobile token` on the gateway's machine prints it) or the device is not allowed",
        ),
        (1009, _) => say(
            lang,
            "отправленное слишком велико; больше оно отправлено не будет",
            "what was sent is too large; it will not be sent again",
        ),
        _ => say(
            lang,
            "шлюз не понимает эту программу; сверьте версии",
            "the gateway does not understand this program; compare versions",
        ),
    };
    let what = match error {
        Some(e) if !e.message.is_empty() => format!("{} ({})", e.message, e.name),
        _ => format!("{} {code}", say(lang, "отказано, код", "refused, code")),
    };
    let detail = error.and_then(|e| e.detail.as_deref()).map(|d| format!(" [{d}]")).unwrap_or_default();
    let device = if device.is_empty() {
        String::new()
    } else {
        format!(" ({} {device:?})", say(lang, "устройство", "device"))
    };
    format!("{what}{detail}: {next}{device}")
}

/// Why there is no connection, for a person.
pub(crate) fn offline(why: &client::core::Why, lang: Lang) -> String {
    use client::core::Why;
    match why {
        Why::Connect { status: Some(404), .. } => say(
            lang,
            "по этому адресу нет шлюза (HTTP 404); обычный путь — /ws",
            "there is no gateway at this address (HTTP 404); the usual path is /ws",
        )
        .into(),
        Why::Connect { detail, .. } => format!(
            "{} ({}): {}",
            say(lang, "не удалось подключиться", "could not connect"),
            detail.strip_prefix("cannot connect: ").unwrap_or(detail),
            say(
                lang,
                "проверьте, что шлюз запущен (`hermes-mobile serve`) и адрес верен",
                "check that the gateway runs (`hermes-mobile serve`) and that the address is right"
            )
        ),
        Why::Late | Why::Silent => say(lang, "шлюз не отвечает", "the gateway does not answer").into(),
        Why::Closed { code: 1012 } => say(lang, "шлюз перезапускается", "the gateway restarts").into(),
        Why::Closed { code: 1013 } => {
            say(lang, "шлюз перегружен или просит подождать", "the gateway is overloaded or asks to wait")
                .into()
        }
        Why::Closed { code } => format!(
            "{} {code}",
            say(lang, "шлюз закрыл связь, код", "the gateway closed the connection, code")
        ),
        Why::Cut => say(lang, "связь прервалась", "the connection was cut").into(),
    }
}
