//! Rules about several frames that belong together: chunks of a message, edits of a stream, parts of a file.

use protocol::limits;
use serde_json::{Value, json};
use tokio::time::Instant;
use unicode_segmentation::GraphemeCursor;

use crate::{
    conn::{Came, Conn, Said, Transcript, Unmet, short},
    value::sha256,
};

/// A stream that is worth its name has at least so many frames.
const STREAM_FRAMES: usize = 3;

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn whole(value: &Value, pointer: &str) -> Option<u64> {
    value.pointer(pointer).and_then(Value::as_u64)
}

/// The next frame of type `t` (of `id`, when that is known); errors end the wait.
async fn next(
    conn: &mut Conn,
    t: &str,
    id: Option<&str>,
    until: Instant,
    lines: &mut Transcript,
) -> Result<Came, Unmet> {
    let expected =
        id.map_or_else(|| format!(r#"{{"t":"{t}"}}"#), |id| format!(r#"{{"t":"{t}","id":"{id}"}}"#)).into();
    loop {
        let came = conn.next(&expected, until, lines).await?;
        let kind = text(&came.value, "t");
        if kind == t && id.is_none_or(|id| text(&came.value, "id") == id) {
            return Ok(came);
        }
        if kind == "error" {
            return Err(Unmet::new(expected, short(&came.value)));
        }
    }
}

fn bad(rule: impl Into<Said>, came: &Came) -> Unmet {
    Unmet::new(rule, short(&came.value))
}

/// Reads one message, in one or more chunks: `{id, text, chunks}`.
pub(crate) async fn message(
    conn: &mut Conn,
    chunk_chars: usize,
    until: Instant,
    lines: &mut Transcript,
) -> Result<Value, Unmet> {
    let first = next(conn, "message", None, until, lines).await?;
    let id = text(&first.value, "id").to_owned();
    let total = whole(&first.value, "/chunk/total").unwrap_or(0);
    let mut joined = String::new();
    let mut ends = vec![];
    let mut came = first;
    for index in 0.. {
        let place = (whole(&came.value, "/chunk/index"), whole(&came.value, "/chunk/total"));
        if place != (Some(index), Some(total)) {
            return Err(bad(format!("chunk {{\"index\":{index},\"total\":{total}}}"), &came));
        }
        let last = index + 1 >= total;
        if came.value.get("final").and_then(Value::as_bool) != Some(last) {
            return Err(bad(
                Said::both(
                    "final:true на последней части и только на ней",
                    "final:true on the last chunk and only there",
                ),
                &came,
            ));
        }
        if came.bytes > limits::FRAME_TO_DEVICE {
            return Err(bad(Said::both("кадр не больше 960 КиБ", "a frame of at most 960 KiB"), &came));
        }
        let piece = text(&came.value, "text");
        if piece.chars().count() > chunk_chars {
            return Err(bad(
                Said::both(
                    format!("часть не длиннее {chunk_chars} знаков"),
                    format!("a chunk of at most {chunk_chars} characters"),
                ),
                &came,
            ));
        }
        joined.push_str(piece);
        if last {
            break;
        }
        ends.push(joined.len());
        came = next(conn, "message", Some(&id), until, lines).await?;
    }
    for end in ends {
        let whole = GraphemeCursor::new(end, joined.len(), true).is_boundary(&joined, 0);
        if whole != Ok(true) {
            let around: String = joined.get(..end).unwrap_or_default().chars().rev().take(3).collect();
            let around: String = around.chars().rev().collect();
            return Err(Unmet::new(
                Said::both("кластер графем не разрезан", "no grapheme cluster is cut"),
                Said::both(
                    format!("часть кончается после {around:?}"),
                    format!("a chunk ends behind {around:?}"),
                ),
            ));
        }
    }
    Ok(json!({"id": id, "text": joined, "chunks": total}))
}

/// Reads a streamed reply: `{id, text, frames}`.
pub(crate) async fn stream(conn: &mut Conn, until: Instant, lines: &mut Transcript) -> Result<Value, Unmet> {
    let mut came = next(conn, "message", None, until, lines).await?;
    let id = text(&came.value, "id").to_owned();
    let mut shown = String::new();
    let mut frames = 0;
    loop {
        frames += 1;
        if came.value.get("edit").and_then(Value::as_bool) != Some(true) {
            return Err(bad(
                Said::both(
                    "edit:true в каждом кадре потокового ответа",
                    "edit:true in every frame of a streamed reply",
                ),
                &came,
            ));
        }
        if (whole(&came.value, "/chunk/index"), whole(&came.value, "/chunk/total")) != (Some(0), Some(1)) {
            return Err(bad(
                Said::both(
                    "chunk {\"index\":0,\"total\":1} в правке",
                    "chunk {\"index\":0,\"total\":1} in an edit",
                ),
                &came,
            ));
        }
        let now = text(&came.value, "text");
        if !now.starts_with(&shown) {
            return Err(bad(
                Said::both(
                    "весь текст до этого места в каждом кадре",
                    "the whole text so far in every frame",
                ),
                &came,
            ));
        }
        shown = now.to_owned();
        match came.value.get("final").and_then(Value::as_bool) {
            Some(true) if frames < STREAM_FRAMES => {
                return Err(bad(
                    Said::both(
                        format!("не меньше {STREAM_FRAMES} кадров"),
                        format!("at least {STREAM_FRAMES} frames"),
                    ),
                    &came,
                ));
            }
            Some(true) => return Ok(json!({"id": id, "text": shown, "frames": frames})),
            Some(false) => {}
            None => return Err(bad(Said::both("final: true или false", "final: true or false"), &came)),
        }
        came = match next(conn, "message", None, until, lines).await {
            Ok(came) if text(&came.value, "id") != id => {
                return Err(bad(Said::both(format!("тот же id {id}"), format!("the same id {id}")), &came));
            }
            Ok(came) => came,
            Err(unmet) => {
                return Err(Unmet::new(
                    Said::both("final:true в конце потока", "final:true at the end of the stream"),
                    unmet.came,
                ));
            }
        };
    }
}

/// What the first bytes of a file say.
fn sniffed(bytes: &[u8]) -> &'static str {
    let at = |from: usize, sign: &[u8]| bytes.get(from..).is_some_and(|rest| rest.starts_with(sign));
    match () {
        () if at(0, b"\x89PNG\r\n\x1a\n") => "image/png",
        () if at(0, b"\xff\xd8\xff") => "image/jpeg",
        () if at(0, b"GIF8") => "image/gif",
        () if at(0, b"OggS") => "audio/ogg",
        () if at(0, b"RIFF") && at(8, b"WAVE") => "audio/wav",
        () if at(0, b"RIFF") && at(8, b"WEBP") => "image/webp",
        () if at(4, b"ftyp") => "video/mp4",
        () if at(0, b"%PDF-") => "application/pdf",
        () => "unknown",
    }
}

/// Reads a file: `{id, kind, mime, filename, caption, size, bytes, parts, sha256, sniffed}`.
pub(crate) async fn file(conn: &mut Conn, until: Instant, lines: &mut Transcript) -> Result<Value, Unmet> {
    let mut came = next(conn, "media", None, until, lines).await?;
    let first = came.value.clone();
    let id = text(&first, "id").to_owned();
    let parts = whole(&first, "/parts").unwrap_or(0);
    let mut bytes = vec![];
    for part in 0.. {
        if (whole(&came.value, "/part"), whole(&came.value, "/parts")) != (Some(part), Some(parts)) {
            return Err(bad(
                Said::both(format!("часть {part} из {parts}"), format!("part {part} of {parts}")),
                &came,
            ));
        }
        for field in ["kind", "mime", "filename", "size"] {
            if came.value.get(field) != first.get(field) {
                return Err(bad(
                    Said::both(
                        format!("одинаковое поле {field} во всех частях"),
                        format!("the same {field} in all parts"),
                    ),
                    &came,
                ));
            }
        }
        if came.bytes > limits::FRAME_TO_DEVICE {
            return Err(bad(Said::both("кадр не больше 960 КиБ", "a frame of at most 960 KiB"), &came));
        }
        let last = part + 1 >= parts;
        if came.value.get("final").and_then(Value::as_bool) != Some(last) {
            return Err(bad(
                Said::both(
                    "final:true на последней части и только на ней",
                    "final:true on the last part and only there",
                ),
                &came,
            ));
        }
        let data = text(&came.value, "data");
        let Ok(mut piece) = base64_simd::STANDARD.decode_to_vec(data) else {
            return Err(bad(Said::both("data в обычном base64", "data in standard base64"), &came));
        };
        if piece.len() > limits::PART_BYTES {
            return Err(bad(
                Said::both("часть не больше 700 000 байт", "a part of at most 700,000 bytes"),
                &came,
            ));
        }
        bytes.append(&mut piece);
        if last {
            break;
        }
        came = next(conn, "media", Some(&id), until, lines).await?;
    }
    Ok(json!({
        "id": id,
        "kind": first.get("kind"),
        "mime": first.get("mime"),
        "filename": first.get("filename"),
        "caption": first.get("caption"),
        "size": first.get("size"),
        "bytes": bytes.len(),
        "parts": parts,
        "sha256": sha256(&bytes),
        "sniffed": sniffed(&bytes),
    }))
}
