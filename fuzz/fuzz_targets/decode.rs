//! Frame decoding: any text, as a frame of a device and as a frame of a server.
#![no_main]

use libfuzzer_sys::fuzz_target;
use protocol::{
    client::{self, ClientFrame},
    code::ErrorCode,
    id, limits, repair, server,
};

fuzz_target!(|data: &[u8]| {
    // The transport hands over text only.
    let Ok(text) = std::str::from_utf8(data) else { return };

    match client::decode(text) {
        Ok(frame) => allowed(&frame),
        Err(problem) => {
            assert!(!problem.detail.is_empty(), "a refusal without a reason");
            assert!(problem.id.is_none_or(|id| (1..=limits::ID_CHARS).contains(&id.chars().count())));
            assert!(
                matches!(problem.code, ErrorCode::BadFrame | ErrorCode::TooBig | ErrorCode::UnsupportedFrame),
                "decoding refuses with {:?}",
                problem.code
            );
        }
    }

    // What the repair gives, it leaves alone the second time; JSON without lone surrogates it does not touch.
    let repaired = repair::lone_surrogates(text);
    assert_eq!(repair::lone_surrogates(&repaired), repaired);
    if serde_json::from_str::<serde_json::Value>(text).is_ok() {
        assert_eq!(repaired, text);
    }

    // What a client reads, it reads again from what we would write.
    if let Ok(Some(frame)) = server::decode(text) {
        let written = frame.encode();
        let again = server::decode(&written);
        assert!(matches!(&again, Ok(Some(frame)) if frame.encode() == written), "{written} became {again:?}");
    }
});

/// Every limit holds for what was accepted.
fn allowed(frame: &ClientFrame) {
    let short = |id: &str| assert!((1..=limits::ID_CHARS).contains(&id.chars().count()), "id {id:?}");
    match frame {
        ClientFrame::Hello(hello) => {
            if let Some(device) = &hello.device {
                assert!(id::valid_device_id(&device.id), "device.id {:?}", device.id);
            }
        }
        ClientFrame::Text(text) => {
            text.id.as_deref().inspect(|id| short(id));
            assert!(text.text.chars().count() <= limits::TEXT_CHARS);
            assert!(!text.text.trim().is_empty());
        }
        ClientFrame::Media(part) => {
            part.id.as_deref().inspect(|id| short(id));
            assert!(part.part < part.parts && part.parts <= limits::PARTS);
            assert!((1..=limits::FILE_BYTES).contains(&part.data.len()));
            assert!(part.caption.as_deref().is_none_or(|c| c.chars().count() <= limits::CAPTION_CHARS));
            if let Some(name) = &part.filename {
                assert!(!name.is_empty() && name.len() <= limits::FILENAME_BYTES, "filename {name:?}");
                assert!(!name.contains(['/', '\\', '\0']), "filename {name:?}");
            }
        }
        ClientFrame::Ping { ts } => assert!(ts.get().len() <= limits::PING_BYTES),
        ClientFrame::Deliver(deliver) => short(&deliver.id),
        ClientFrame::Prompt(_) | ClientFrame::Unknown { .. } => {}
    }
}
