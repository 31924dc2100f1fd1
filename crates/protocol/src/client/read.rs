//! From the text of a frame to a checked [`ClientFrame`].

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::{
    ClientFrame, Deliver, Hello, HelloDevice, MediaKind, MediaPart, PromptAnswer, Resume, Text, VoiceFormat,
    fields::Fields,
};
use crate::{base64, code::ErrorCode, id, limits, problem::Problem, repair, sniff, words::Say};

/// Every field of every frame from a device. A frame type looks only at its own.
const NAMES: [&str; 27] = [
    "t",
    "id",
    "text",
    "token",
    "device",
    "user",
    "lang",
    "features",
    "resume",
    "v",
    "format",
    "sample_rate",
    "duration_ms",
    "kind",
    "mime",
    "filename",
    "caption",
    "upload",
    "part",
    "parts",
    "data",
    "prompt_id",
    "option_id",
    "ts",
    "target",
    "offline",
    "name",
];
type Frame<'a> = Fields<'a, 27>;

/// Longest `t` that is told of an unknown frame, characters: it is for the log only.
const UNKNOWN_CHARS: usize = 64;
/// Bytes that tell what container a voice message is.
const VOICE_HEAD: usize = 12;

/// Reads one text frame.
///
/// Lone surrogates are repaired first. Unknown fields are skipped whatever they hold. A `null` field is an absent one.
/// All types of the known fields are checked first, then kinds and formats, then values.
///
/// # Errors
/// A [`Problem`] that names the field and what is allowed; `id` is set when the frame had a valid one.
pub fn decode(text: &str) -> Result<ClientFrame, Problem> {
    let text = repair::lone_surrogates(text);
    let frame = Frame::read(&text, &NAMES, "").map_err(|e| {
        // The category and the place, never a piece of the text.
        let what = if e.is_data() { "JSON but not an object" } else { "not valid JSON" };
        rubbish(format!(
            "the frame is {what} (line {}, column {}); it must be one JSON object",
            e.line(),
            e.column()
        ))
    })?;
    let t = frame
        .string("t")
        .ok()
        .flatten()
        .ok_or_else(|| rubbish("t must be there once and be a string: the type of the frame".into()))?;
    match t.as_ref() {
        "hello" => hello(&frame).map(|h| ClientFrame::Hello(Box::new(h))).map_err(|mut p| {
            p.in_hello = true;
            p
        }),
        "text" => with_id(&frame, |id| said(&frame, id)),
        "audio" => media(&frame, voice),
        "media" => media(&frame, file),
        "prompt" => with_id(&frame, |_| answer(&frame)),
        "ping" => with_id(&frame, |_| ping(&frame)),
        "deliver" => with_id(&frame, |id| deliver(&frame, id)),
        _ => Ok(ClientFrame::Unknown { t: t.chars().take(UNKNOWN_CHARS).collect() }),
    }
}

fn rubbish(detail: String) -> Problem {
    let mut problem = Problem::bad(detail);
    problem.rubbish = true;
    problem
}

/// Checks `id`, and gives it to every refusal of what follows.
fn with_id<T>(
    frame: &Frame<'_>,
    read: impl FnOnce(Option<String>) -> Result<T, Problem>,
) -> Result<T, Problem> {
    let id = short(frame, "id")?;
    read(id.clone()).map_err(|p| p.with_id(id))
}

/// An id: a string of 1–128 characters.
fn short(frame: &Frame<'_>, name: &'static str) -> Result<Option<String>, Problem> {
    let Some(value) = frame.string(name)? else { return Ok(None) };
    if value.is_empty() || longer(&value, limits::ID_CHARS) {
        return Err(frame.wrong(name, "a string of 1 to 128 characters"));
    }
    Ok(Some(value.into_owned()))
}

fn required<T>(frame: &Frame<'_>, name: &'static str, value: Option<T>, allowed: &str) -> Result<T, Problem> {
    value.ok_or_else(|| frame.wrong(name, &format!("there: {allowed}")))
}

/// Whether a text has more than `most` characters; looks at no more of it than it must.
fn longer(text: &str, most: usize) -> bool {
    text.len() > most && text.chars().nth(most).is_some()
}

/// A label for people; longer than allowed is refused, since nothing is cut in silence.
fn label<const N: usize>(fields: &Fields<'_, N>, name: &'static str) -> Result<Option<String>, Problem> {
    let Some(value) = fields.string(name)? else { return Ok(None) };
    if longer(&value, limits::LABEL_CHARS) {
        return Err(fields.wrong(name, &format!("at most {} characters", limits::LABEL_CHARS)));
    }
    Ok(Some(value.into_owned()).filter(|v| !v.is_empty()))
}

/// What a person says: not white space only, at most 12,000 characters.
fn words(text: Cow<'_, str>) -> Result<String, Problem> {
    if text.chars().all(char::is_whitespace) {
        return Err(Problem::bad("text is empty or white space only; it must have something to read")
            .saying(Say::EmptyText));
    }
    if longer(&text, limits::TEXT_CHARS) {
        return Err(long_text());
    }
    Ok(text.into_owned())
}

fn long_text() -> Problem {
    Problem::new(ErrorCode::TooBig, format!("text must be at most {} characters", limits::TEXT_CHARS))
        .saying(Say::LongText)
}

fn hello(frame: &Frame<'_>) -> Result<Hello, Problem> {
    let device = frame.object("device", &["id", "name", "platform", "app_version"], "device.")?;
    let user = frame.object("user", &["id", "name"], "user.")?;
    let resume = frame.object("resume", &["epoch", "seq"], "resume.")?;
    frame.whole::<u32>("v")?;
    Ok(Hello {
        token: frame.string("token")?.map(Cow::into_owned),
        device: device.map(|d| hello_device(&d)).transpose()?,
        user_id: user.as_ref().map(device_id).transpose()?.flatten(),
        user_name: user.map(|u| label(&u, "name")).transpose()?.flatten(),
        lang: label(frame, "lang")?,
        features: features(frame)?,
        resume: resume
            .map(|r| {
                let epoch = label(&r, "epoch")?
                    .ok_or_else(|| r.wrong("epoch", "there: the epoch that ready told"))?;
                let seq = r
                    .whole("seq")?
                    .ok_or_else(|| r.wrong("seq", "there: the last seq that was processed"))?;
                Ok(Resume { epoch, seq })
            })
            .transpose()?,
    })
}

fn hello_device(device: &Fields<'_, 4>) -> Result<HelloDevice, Problem> {
    Ok(HelloDevice {
        id: device_id(device)?
            .ok_or_else(|| device.wrong("id", &format!("there: it {}", id::DEVICE_ID_RULE)))?,
        name: label(device, "name")?,
        platform: label(device, "platform")?,
        app_version: label(device, "app_version")?,
    })
}

/// `device.id` or `user.id`.
fn device_id<const N: usize>(fields: &Fields<'_, N>) -> Result<Option<String>, Problem> {
    let rule = id::DEVICE_ID_RULE.trim_start_matches("must be ");
    match fields.string("id")? {
        Some(id) if !id::valid_device_id(&id) => Err(fields.wrong("id", rule)),
        id => Ok(id.map(Cow::into_owned)),
    }
}

fn features(frame: &Frame<'_>) -> Result<Vec<String>, Problem> {
    let features = frame.strings("features", limits::FEATURES)?.unwrap_or_default();
    if features.iter().any(|f| longer(f, limits::LABEL_CHARS)) {
        return Err(frame.wrong("features", &format!("names of at most {} characters", limits::LABEL_CHARS)));
    }
    Ok(features)
}

fn said(frame: &Frame<'_>, id: Option<String>) -> Result<ClientFrame, Problem> {
    let text = required(frame, "text", frame.string("text")?, "a string of 1 to 12,000 characters")?;
    Ok(ClientFrame::Text(Text { id, text: words(text)? }))
}

fn answer(frame: &Frame<'_>) -> Result<ClientFrame, Problem> {
    let (prompt_id, option_id) = (short(frame, "prompt_id")?, short(frame, "option_id")?);
    let text = frame.string("text")?;
    let prompt_id = required(frame, "prompt_id", prompt_id, "the id of the card")?;
    let option_id = required(frame, "option_id", option_id, "the id of the option")?;
    // A free answer of white space is none: the next text will be the answer.
    let text = text.filter(|t| !t.chars().all(char::is_whitespace));
    if text.as_ref().is_some_and(|t| longer(t, limits::TEXT_CHARS)) {
        return Err(long_text());
    }
    Ok(ClientFrame::Prompt(PromptAnswer { prompt_id, option_id, text: text.map(Cow::into_owned) }))
}

fn ping(frame: &Frame<'_>) -> Result<ClientFrame, Problem> {
    // A ping without `ts` is answered by `null`.
    let ts = frame.raw("ts")?.unwrap_or(RawValue::NULL);
    if ts.get().len() > limits::PING_BYTES {
        return Err(frame.wrong("ts", &format!("at most {} bytes of JSON", limits::PING_BYTES)));
    }
    Ok(ClientFrame::Ping { ts: ts.to_owned() })
}

fn deliver(frame: &Frame<'_>, id: Option<String>) -> Result<ClientFrame, Problem> {
    let (target, text, offline) = (frame.string("target")?, frame.string("text")?, frame.string("offline")?);
    let id = required(frame, "id", id, "a string of 1 to 128 characters")?;
    let target = required(frame, "target", target, "a device id, or home")?;
    if !id::valid_device_id(&target) {
        return Err(frame.wrong("target", &format!("home or a device id, which {}", id::DEVICE_ID_RULE)));
    }
    let queue = match offline.as_deref() {
        None => false,
        Some("queue") => true,
        Some(_) => return Err(frame.wrong("offline", "absent or \"queue\"")),
    };
    let text = required(frame, "text", text, "a string of 1 to 12,000 characters")?;
    Ok(ClientFrame::Deliver(Deliver { id, target: target.into_owned(), text: words(text)?, queue }))
}

/// `audio` and `media`: a refusal also ends the series.
fn media(
    frame: &Frame<'_>,
    kind: impl FnOnce(&Frame<'_>) -> Result<MediaPart, Problem>,
) -> Result<ClientFrame, Problem> {
    let id = short(frame, "id")?;
    // The fields that both have, their types first.
    let read = || {
        let (part, parts, data) = (frame.whole("part")?, frame.whole("parts")?, frame.string("data")?);
        let mut media = kind(frame)?;
        (media.part, media.parts) = (part.unwrap_or(0), parts.unwrap_or(1));
        if !(1..=limits::PARTS).contains(&media.parts) {
            return Err(frame.wrong("parts", &format!("1 to {}", limits::PARTS)));
        }
        if media.part >= media.parts {
            return Err(frame.wrong("part", "less than parts (the first part is 0)"));
        }
        if media.parts > 1 && id.is_none() {
            return Err(frame.wrong("id", "there when a file comes in several parts"));
        }
        let data = required(frame, "data", data, "base64")?;
        media.data =
            base64::decode_part(&data, media.part == 0, media.part + 1 == media.parts, limits::FILE_BYTES)?;
        check_voice(&media)?;
        Ok(media)
    };
    match read() {
        Ok(mut media) => {
            media.id = id;
            Ok(ClientFrame::Media(media))
        }
        Err(mut problem) => {
            problem.ends_series = id.clone();
            Err(problem.with_id(id))
        }
    }
}

/// A part without what [`media`] fills in.
fn empty(kind: MediaKind) -> MediaPart {
    MediaPart {
        id: None,
        kind,
        mime: None,
        filename: None,
        caption: None,
        part: 0,
        parts: 1,
        data: Vec::new(),
    }
}

fn voice(frame: &Frame<'_>) -> Result<MediaPart, Problem> {
    let (format, rate, duration_ms) =
        (frame.string("format")?, frame.rounded("sample_rate")?, frame.rounded("duration_ms")?);
    let format = match required(frame, "format", format, "wav or ogg")?.as_ref() {
        "wav" => VoiceFormat::Wav,
        "ogg" => VoiceFormat::Ogg,
        _ => return Err(unsupported("format must be wav or ogg")),
    };
    let sample_rate = rate
        .map(u32::try_from)
        .transpose()
        .map_err(|_| frame.wrong("sample_rate", "a number of Hz below 2^32"))?;
    Ok(empty(MediaKind::Voice { format, sample_rate, duration_ms }))
}

fn file(frame: &Frame<'_>) -> Result<MediaPart, Problem> {
    let (kind, caption, filename) =
        (frame.string("kind")?, frame.string("caption")?, frame.string("filename")?);
    let mime = label(frame, "mime")?;
    if frame.string("upload")?.is_some() {
        return Err(unsupported("upload is not supported by this server; send the file as base64 in data"));
    }
    let kind = match required(frame, "kind", kind, "image, video, document or audio")?.as_ref() {
        "image" => MediaKind::Image,
        "video" => MediaKind::Video,
        "document" => MediaKind::Document,
        "audio" => MediaKind::Audio,
        _ => return Err(unsupported("kind must be image, video, document or audio")),
    };
    if mime.as_ref().is_some_and(|m| m.chars().any(char::is_control)) {
        return Err(frame.wrong("mime", "a MIME type without control characters"));
    }
    let caption = caption.filter(|c| !c.is_empty()).map(Cow::into_owned);
    if caption.as_ref().is_some_and(|c| longer(c, limits::CAPTION_CHARS)) {
        return Err(Problem::new(
            ErrorCode::TooBig,
            format!("caption must be at most {} characters", limits::CAPTION_CHARS),
        )
        .saying(Say::LongCaption));
    }
    let filename = filename.and_then(|name| id::clean_filename(&name));
    Ok(MediaPart { mime, filename, caption, ..empty(kind) })
}

/// The bytes of a voice message must be the container that it declares. A first part of a few bytes cannot tell yet.
fn check_voice(media: &MediaPart) -> Result<(), Problem> {
    let MediaKind::Voice { format, .. } = media.kind else { return Ok(()) };
    let tells = media.part == 0 && (media.parts == 1 || media.data.len() >= VOICE_HEAD);
    if tells && !sniff::is_voice(&media.data, format) {
        return Err(Problem::bad("data must be what format says: RIFF/WAVE for wav, Ogg pages for ogg"));
    }
    Ok(())
}

fn unsupported(detail: &str) -> Problem {
    Problem::new(ErrorCode::UnsupportedFrame, detail)
}
