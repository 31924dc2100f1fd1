//! Files: `/image` and the like, `/pictures`, `/file`, `/stealfile`, and the reply to a file that came in.

use protocol::{
    link::{CallError, FromAgent, InFile, MediaSource, Offline, Outcome, TurnState},
    server::OutKind,
};
use sha2::{Digest, Sha256};

use super::{Demo, Tag, Then, Work, png};

static VOICE: &[u8] = include_bytes!("../../assets/voice.ogg");
static VIDEO: &[u8] = include_bytes!("../../assets/video.mp4");
static DOCUMENT: &[u8] = include_bytes!("../../assets/document.pdf");
static ANIMATION: &[u8] = include_bytes!("../../assets/animation.gif");

/// What is outside of the gateway's folder on every machine.
const STOLEN: &str = "/etc/shadow";

/// Files to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Files {
    Image,
    Voice,
    Video,
    Document,
    Animation,
    /// So many pictures, one after another.
    Pictures(usize),
    /// So many bytes.
    Bytes(usize),
    /// A file that the gateway must refuse.
    Steal,
}

/// One file, before it becomes a call.
struct File {
    kind: OutKind,
    source: MediaSource,
    mime: &'static str,
    filename: String,
    caption: String,
}

impl Files {
    fn count(&self) -> usize {
        if let Self::Pictures(n) = self { *n } else { 1 }
    }

    /// File number `at`, from 0. Made anew for each call, also for a repeated one: large ones are not kept.
    fn file(&self, at: usize) -> File {
        let asset = |kind, bytes: &[u8], mime, filename: &str, caption: &str| File {
            kind,
            source: MediaSource::Data(bytes.to_vec()),
            mime,
            filename: filename.to_owned(),
            caption: caption.to_owned(),
        };
        match self {
            Self::Image => {
                asset(OutKind::Image, &png::picture(1), "image/png", "picture.png", "A picture / Картинка")
            }
            Self::Voice => asset(
                OutKind::Voice,
                VOICE,
                "audio/ogg",
                "voice.ogg",
                "A voice message / Голосовое сообщение",
            ),
            Self::Video => asset(OutKind::Video, VIDEO, "video/mp4", "video.mp4", "A video / Видео"),
            Self::Document => {
                asset(OutKind::Document, DOCUMENT, "application/pdf", "document.pdf", "A document / Документ")
            }
            Self::Animation => {
                asset(OutKind::Animation, ANIMATION, "image/gif", "animation.gif", "An animation / Анимация")
            }
            Self::Pictures(n) => {
                let (one, name) = (at + 1, format!("picture-{}.png", at + 1));
                let caption = format!("Picture {one} of {n} / Картинка {one} из {n}");
                asset(OutKind::Image, &png::picture(one), "image/png", &name, &caption)
            }
            Self::Bytes(n) => {
                let bytes: Vec<u8> = (0..=250).cycle().take(*n).collect();
                let caption = format!("sha256 {}", hex(&Sha256::digest(&bytes)));
                File {
                    kind: OutKind::Document,
                    source: MediaSource::Data(bytes),
                    mime: "application/octet-stream",
                    filename: format!("file-{n}.bin"),
                    caption,
                }
            }
            Self::Steal => File {
                kind: OutKind::Document,
                source: MediaSource::Path(STOLEN.to_owned()),
                mime: "text/plain",
                filename: "shadow".to_owned(),
                caption: String::new(),
            },
        }
    }
}

/// The reply to a file.
pub(super) fn got(file: &InFile) -> String {
    let InFile { kind, filename, mime, bytes, sha256, .. } = file;
    format!("Got {kind} {filename} {mime} {bytes} bytes sha256 {sha256}")
}

impl Demo {
    /// Begins with files, or waits while the device still gets those of an earlier message: in order, and one file in
    /// memory for each device.
    pub(super) fn files(&mut self, event: u64, out: &mut Vec<FromAgent>) {
        self.begin_job(event, out);
        let Some(device) = self.jobs.get(&event).map(|job| job.device.clone()) else { return };
        if self.first_files(&device) == Some(event) {
            self.send_file(event, 0, out);
        }
    }

    fn first_files(&self, device: &str) -> Option<u64> {
        let jobs = &self.devices.get(device)?.jobs;
        jobs.iter()
            .copied()
            .find(|e| matches!(self.jobs.get(e), Some(job) if matches!(job.work, Work::Files(_))))
    }

    /// Sends the next file of a job.
    pub(super) fn send_file(&mut self, event: u64, tries: u32, out: &mut Vec<FromAgent>) {
        let Some(job) = self.jobs.get(&event) else { return };
        let Work::Files(files) = &job.work else { return };
        let File { kind, source, mime, filename, caption } = files.file(job.at);
        let (device, key) = (job.device.clone(), format!("e{event}/{}", job.at + 1));
        let req = self.calls.req();
        self.calls.track(Tag { device: device.clone(), event, then: Then::File }, req, tries);
        out.push(FromAgent::Media {
            req,
            key,
            device,
            kind,
            source,
            mime: Some(mime.to_owned()),
            filename: Some(filename),
            caption: Some(caption).filter(|c| !c.is_empty()),
            reply_to: None,
            offline: Offline::Queue,
        });
    }

    /// A file was taken over. The event is done only now: files are taken over outside of the commit of a call, and a
    /// repeat with the same key does no harm.
    pub(super) fn file_sent(&mut self, event: u64, out: &mut Vec<FromAgent>) {
        let Some(job) = self.jobs.get_mut(&event) else { return };
        let Work::Files(files) = &job.work else { return };
        job.at += 1;
        if job.at < files.count() {
            self.send_file(event, 0, out);
            return;
        }
        let device = job.device.clone();
        self.drop_job(event);
        out.push(FromAgent::Done { event, outcome: Outcome::Ok });
        self.end(&device, TurnState::Off, out);
        self.next_files(&device, out);
    }

    /// A file was refused for good.
    pub(super) fn file_refused(&mut self, event: u64, error: &CallError, out: &mut Vec<FromAgent>) {
        let Some(job) = self.jobs.get(&event) else { return };
        if matches!(job.work, Work::Files(Files::Steal)) && !error.retryable {
            // As it must be: the gateway has told the user.
            self.file_sent(event, out);
            return;
        }
        let device = job.device.clone();
        self.fail_job(event, out);
        self.next_files(&device, out);
    }

    fn next_files(&mut self, device: &str, out: &mut Vec<FromAgent>) {
        if let Some(next) = self.first_files(device) {
            self.send_file(next, 0, out);
        }
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    bytes.iter().flat_map(|b| [DIGITS[usize::from(b >> 4)], DIGITS[usize::from(b & 15)]]).collect()
}
