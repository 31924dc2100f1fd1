//! Encodes or decodes one fixed frame many times, for callgrind: `codec FRAME TIMES`. Without arguments it lists the frames.
//! `scripts/codec_budget` counts the instructions of each frame and compares them with `bench/codec.budget`.

use std::{env, hint::black_box, process::ExitCode};

use protocol::{
    client,
    server::{Capabilities, Chunk, Media, Message, OutKind, Ready, ReadyDevice, ServerFrame},
};

/// Bytes of a part of a file.
const PART: usize = 700_000;

/// A name, and one pass over the frame, made ready before.
type Frame = (&'static str, fn() -> Box<dyn Fn()>);

const FRAMES: [Frame; 6] = [
    ("hello-in", || {
        decode(
            r#"{"t":"hello","v":1,"token":"0123456789abcdef0123456789abcdef","device":{"id":"phone-1","name":"My phone","platform":"android","app_version":"1.2.3"},"user":{"id":"anna","name":"Anna"},"lang":"ru"}"#
                .to_owned(),
        )
    }),
    ("text-in", || {
        decode(
            r#"{"t":"text","id":"c0123456789abcdef","text":"Как дела? About as long as what people type, with a \"quote\" and\na line."}"#
                .to_owned(),
        )
    }),
    ("media-in", || {
        let data = protocol::base64::encode(&part());
        decode(format!(
            r#"{{"t":"media","id":"f1","kind":"document","mime":"application/octet-stream","filename":"a.bin","part":0,"parts":2,"data":"{data}"}}"#
        ))
    }),
    ("ready-out", || {
        encode(ServerFrame::Ready(Box::new(Ready {
            v: 1,
            session: "mobile:phone-1".to_owned(),
            device: ReadyDevice { id: "phone-1".to_owned(), name: "My phone".to_owned() },
            avatar_url: String::new(),
            capabilities: Capabilities::default(),
            features: Vec::new(),
            limits: None,
        })))
    }),
    ("message-out", || {
        encode(ServerFrame::Message(Message {
            id: "m0123456789abcdef0123456789abcdef".to_owned(),
            text: "Хорошо. About as long as what agents answer, with a \"quote\" and\na line.".to_owned(),
            chunk: Chunk { index: 0, total: 1 },
            last: true,
            edit: false,
            reply_to: None,
            seq: Some(12_345),
        }))
    }),
    ("media-out", || {
        let media = Media {
            id: "m0123456789abcdef0123456789abcdef".to_owned(),
            kind: OutKind::Document,
            mime: "application/octet-stream".to_owned(),
            filename: "a.bin".to_owned(),
            caption: None,
            part: 0,
            parts: 2,
            last: false,
            size: 1_400_000,
            data: String::new(),
            reply_to: None,
            seq: None,
        };
        let bytes = part();
        Box::new(move || drop(black_box(media.clone().encode_with(black_box(&bytes)))))
    }),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [name, times] = arguments.as_slice() else {
        FRAMES.iter().for_each(|(name, _)| println!("{name}"));
        return ExitCode::SUCCESS;
    };
    let frame = FRAMES.iter().find(|(known, _)| known == name);
    let (Some((_, make)), Ok(times)) = (frame, times.parse::<u32>()) else {
        eprintln!("usage: codec [FRAME TIMES]");
        return ExitCode::from(64);
    };
    let pass = make();
    for _ in 0..times {
        pass();
    }
    ExitCode::SUCCESS
}

fn decode(text: String) -> Box<dyn Fn()> {
    // A frame that is refused would be cheap, and say nothing.
    assert!(client::decode(&text).is_ok(), "the fixed frame is refused");
    Box::new(move || drop(black_box(client::decode(black_box(&text)))))
}

fn encode(frame: ServerFrame) -> Box<dyn Fn()> {
    Box::new(move || drop(black_box(black_box(&frame).encode())))
}

/// Bytes of no pattern that a file could be taken for.
fn part() -> Vec<u8> {
    (0..PART).map(|at| (at * 7 % 251) as u8).collect()
}
