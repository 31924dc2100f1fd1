//! The core in virtual time.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// A client with a scripted server: what it sends is kept, what it tells too.
struct Rig {
    client: Client,
    now: u64,
    sent: Vec<Value>,
    told: Vec<Event>,
    connects: usize,
    closes: Vec<Option<u16>>,
    /// Frames handed over and not reported as written.
    unwritten: usize,
    /// Report each frame as written at once.
    writes: bool,
}

impl Rig {
    fn new() -> Self {
        Self::with(|_| {})
    }
    fn with(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::new([7; 32]);
        config.device = Some(Device { id: "d1".into(), name: None, platform: None, app_version: None });
        config.token = Some("secret".into());
        change(&mut config);
        Self {
            client: Client::new(config),
            now: 1_000,
            sent: vec![],
            told: vec![],
            connects: 0,
            closes: vec![],
            unwritten: 0,
            writes: true,
        }
    }
    fn carry_out(&mut self, out: Vec<Action>) {
        for action in out {
            match action {
                Action::Connect => {
                    self.connects += 1;
                    self.unwritten = 0;
                }
                Action::Send(text) => {
                    self.sent.push(serde_json::from_str(&text).unwrap());
                    self.unwritten += 1;
                }
                Action::Close(code) => self.closes.push(Some(code)),
                Action::Drop => self.closes.push(None),
                Action::Tell(event) => self.told.push(event),
            }
        }
    }
    fn feed(&mut self, input: Input) {
        let mut out = vec![];
        self.client.handle(input, self.now, &mut out);
        self.carry_out(out);
        while self.writes && self.unwritten > 0 {
            self.written();
        }
    }
    fn written(&mut self) {
        self.unwritten -= 1;
        let mut out = vec![];
        self.client.handle(Input::Sent, self.now, &mut out);
        self.carry_out(out);
    }
    fn frame(&mut self, frame: Value) {
        self.feed(Input::Frame(frame.to_string()));
    }
    fn submit(&mut self, request: Request) -> Result<String, SubmitError> {
        let mut out = vec![];
        let id = self.client.submit(request, None, self.now, &mut out);
        self.carry_out(out);
        self.feed(Input::Alive);
        id
    }
    fn text(&mut self, text: &str) -> String {
        self.submit(Request::Text(text.into())).unwrap()
    }
    /// Lets time pass with every deadline kept.
    fn pass(&mut self, ms: u64) {
        let end = self.now + ms;
        while let Some(at) = self.client.deadline().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            let before = self.client.deadline();
            self.feed(Input::Tick);
            assert!(
                self.client.deadline() != before || self.client.deadline() > Some(self.now),
                "a deadline that does not move"
            );
        }
        self.now = end;
    }
    fn connect(&mut self) {
        self.feed(Input::Start);
        self.feed(Input::Opened);
        self.frame(ready());
    }
    /// Waits for the next attempt.
    fn retry(&mut self) {
        let before = self.connects;
        while self.connects == before {
            let at = self.client.deadline().expect("an attempt is planned");
            self.pass(at.saturating_sub(self.now));
        }
    }
    fn again(&mut self) {
        self.retry();
        self.feed(Input::Opened);
        self.frame(ready());
    }
    fn take(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.sent)
    }
    fn events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.told)
    }
    fn pong(&mut self) {
        let ts = self.sent.iter().rfind(|f| f["t"] == "ping").map(|f| f["ts"].clone()).expect("a ping");
        self.frame(json!({"t":"pong","ts":ts}));
    }
    fn messages(&mut self) -> Vec<(String, String, bool, bool)> {
        self.events()
            .into_iter()
            .filter_map(|e| match e {
                Event::Message(m) => Some((m.id, m.text, m.last, m.redraw)),
                _ => None,
            })
            .collect()
    }
}

fn ready() -> Value {
    json!({"t":"ready","v":1,"session":"mobile:d1","device":{"id":"d1","name":"d1"},"avatar_url":"","capabilities":{
        "text":true,"voice":true,"typing":true,"avatar_states":["idle","thinking","speaking"],
        "media_in":["image","video","document","audio"],"media_out":["image","voice","video","document","animation"],
        "prompts":["exec_approval","slash_confirm","clarify"],"edit":true,"max_media_bytes":8_388_608,"max_text_chars":12_000}})
}

fn message(id: &str, text: &str, index: u32, total: u32, last: bool, edit: bool) -> Value {
    json!({"t":"message","id":id,"text":text,"chunk":{"index":index,"total":total},"final":last,"edit":edit})
}

fn file(bytes: usize) -> Request {
    Request::File {
        kind: FileKind::Document,
        mime: "application/octet-stream".into(),
        filename: "f.bin".into(),
        caption: Some("c".into()),
        bytes: vec![1; bytes],
    }
}

fn of<'a>(frames: &'a [Value], t: &str) -> Vec<&'a Value> {
    frames.iter().filter(|f| f["t"] == t).collect()
}

#[test]
fn hello_then_ready_then_what_waited() {
    let mut rig = Rig::with(|c| c.lang = Some("en".into()));
    let id = rig.text("early");
    assert_eq!(rig.take(), Vec::<Value>::new());
    rig.feed(Input::Start);
    assert_eq!(rig.connects, 1);
    rig.feed(Input::Opened);
    assert_eq!(rig.take(), [json!({"t":"hello","v":1,"token":"secret","device":{"id":"d1"},"lang":"en"})]);
    rig.frame(ready());
    let sent = rig.take();
    assert_eq!(sent[0], json!({"t":"text","id":id,"text":"early"}));
    assert_eq!(sent[1]["t"], "ping");
    assert!(matches!(rig.events()[..], [Event::Connecting, Event::Ready(_)]));
}

#[test]
fn accepted_when_the_pong_is_back_and_told_once() {
    let mut rig = Rig::new();
    rig.connect();
    rig.events();
    let id = rig.text("a");
    rig.frame(json!({"t":"pong","ts":999}));
    assert!(rig.events().is_empty());
    rig.pong();
    assert!(matches!(&rig.events()[..], [Event::Accepted { id: told }] if *told == id));
    assert_eq!(rig.client.unsettled(), 0);
    // A drop soon after: sent again under the same id, but not told again.
    rig.take();
    rig.feed(Input::Closed { code: Some(1012) });
    rig.again();
    assert_eq!(of(&rig.sent, "text"), [&json!({"t":"text","id":id,"text":"a"})]);
    rig.events();
    rig.pong();
    assert!(rig.events().is_empty());
    // Long after it is forgotten.
    rig.pass(20_000);
    rig.take();
    rig.feed(Input::Closed { code: None });
    rig.again();
    assert!(of(&rig.take(), "text").is_empty());
}

#[test]
fn every_retry_has_the_same_id_and_order() {
    let mut rig = Rig::new();
    rig.connect();
    let ids: Vec<_> = ["a", "b", "c"].map(|t| rig.text(t)).to_vec();
    for _ in 0..5 {
        let sent: Vec<_> =
            of(&rig.take(), "text").iter().map(|f| f["id"].as_str().unwrap().to_owned()).collect();
        assert_eq!(sent, ids);
        rig.feed(Input::Closed { code: None });
        rig.again();
    }
}

#[test]
fn a_pong_proves_only_what_was_sent_before_its_ping() {
    let mut rig = Rig::new();
    rig.connect();
    let a = rig.text("a");
    let b = rig.text("b");
    rig.events();
    rig.pong();
    let accepted = |events: Vec<Event>| -> Vec<String> {
        events
            .into_iter()
            .filter_map(|e| if let Event::Accepted { id } = e { Some(id) } else { None })
            .collect()
    };
    assert_eq!(accepted(rig.events()), [a]);
    rig.pong();
    assert_eq!(accepted(rig.events()), [b]);
}

#[test]
fn field_final_closes_are_final() {
    for code in [1008, 4001, 1003, 1009] {
        let mut rig = Rig::new();
        rig.connect();
        rig.feed(Input::Closed { code: Some(code) });
        rig.pass(10 * 24 * 3600 * 1000);
        assert_eq!(rig.connects, 1, "{code}");
        assert!(rig.events().iter().any(|e| matches!(e, Event::Refused { code: c, .. } if *c == code)));
        rig.feed(Input::Start);
        assert_eq!(rig.connects, 2, "the app may start anew");
    }
    for code in [None, Some(1000), Some(1001), Some(1006), Some(1011), Some(1012), Some(1013), Some(4999)] {
        let mut rig = Rig::new();
        rig.connect();
        rig.feed(Input::Closed { code });
        rig.retry();
        assert_eq!(rig.connects, 2, "{code:?}");
    }
}

#[test]
fn a_fatal_error_is_final_even_if_the_close_is_lost() {
    for (code, close) in [
        ("auth_failed", 1008),
        ("replaced", 4001),
        ("too_big", 1009),
        ("bad_frame", 1003),
        ("new_word", 1008),
    ] {
        let mut rig = Rig::new();
        rig.connect();
        rig.frame(json!({"t":"error","code":code,"message":"m","fatal":true}));
        assert_eq!(rig.closes, [Some(1000)]);
        rig.pass(1_000_000);
        assert_eq!(rig.connects, 1);
        assert!(
            rig.events()
                .iter()
                .any(|e| matches!(e, Event::Refused { code, error: Some(_) } if *code == close))
        );
    }
    let mut rig = Rig::new();
    rig.feed(Input::Start);
    rig.feed(Input::ConnectFailed { status: Some(403), detail: String::new() });
    rig.pass(1_000_000);
    assert_eq!(rig.connects, 1);
}

#[test]
fn locked_out_waits_as_long_as_asked() {
    let mut rig = Rig::new();
    rig.feed(Input::Start);
    rig.feed(Input::Opened);
    rig.frame(json!({"t":"error","code":"rate_limited","message":"m","fatal":false,"retry_after_ms":90_000}));
    rig.feed(Input::Closed { code: Some(1013) });
    rig.pass(89_000);
    assert_eq!(rig.connects, 1);
    rig.pass(2_000);
    assert_eq!(rig.connects, 2);
}

#[test]
fn field_too_large_drops_the_item_and_keeps_the_others() {
    let mut rig = Rig::new();
    rig.connect();
    let small = rig.text("small");
    let large = rig.submit(file(900_000)).unwrap();
    rig.feed(Input::Closed { code: Some(1009) });
    let failed: Vec<_> = rig
        .events()
        .into_iter()
        .filter(|e| matches!(e, Event::Failed { id, why: Failure::TooLarge } if *id == large))
        .collect();
    assert_eq!(failed.len(), 1);
    rig.take();
    rig.connect();
    let sent = rig.take();
    assert_eq!(of(&sent, "text")[0]["id"], small);
    assert!(of(&sent, "media").is_empty());
}

#[test]
fn field_three_complaints_set_the_oldest_aside() {
    let mut rig = Rig::new();
    rig.connect();
    let poison = rig.text("poison");
    let good = rig.text("good");
    for _ in 0..3 {
        rig.take();
        rig.feed(Input::Closed { code: None });
        rig.again();
        rig.take();
        rig.feed(Input::Closed { code: Some(1007) });
        rig.again();
    }
    let sent = rig.take();
    assert_eq!(of(&sent, "text").iter().map(|f| f["id"].clone()).collect::<Vec<_>>(), [json!(good)]);
    assert!(
        rig.events()
            .iter()
            .any(|e| matches!(e, Event::Failed { id, why: Failure::Complaint } if *id == poison))
    );
}

#[test]
fn a_refused_item_is_reported_and_never_sent_again() {
    let mut rig = Rig::new();
    rig.connect();
    let id = rig.text("x");
    rig.pong();
    rig.events();
    // Late, after the proof: it still is about the item.
    rig.frame(json!({"t":"error","code":"too_big","message":"m","fatal":false,"id":id}));
    assert!(
        matches!(&rig.events()[..], [Event::Failed { id: told, why: Failure::Refused(e) }] if *told == id && e.code == Some(ErrorCode::TooBig))
    );
    rig.take();
    rig.feed(Input::Closed { code: None });
    rig.again();
    assert!(of(&rig.take(), "text").is_empty());
    rig.frame(json!({"t":"error","code":"bad_frame","message":"m","fatal":false,"id":"other"}));
    assert!(matches!(rig.events()[..], [.., Event::Error(_)]));
}

#[test]
fn rate_limited_is_sent_again_when_allowed() {
    let mut rig = Rig::with(|c| c.tries = 2);
    rig.connect();
    let id = rig.text("x");
    for _ in 0..2 {
        rig.take();
        rig.frame(json!({"t":"error","code":"rate_limited","message":"m","fatal":false,"id":id,"retry_after_ms":3_000}));
        rig.pass(2_900);
        assert!(of(&rig.sent, "text").is_empty());
        rig.pass(200);
        assert_eq!(of(&rig.sent, "text")[0]["id"], id);
    }
    rig.events();
    rig.frame(
        json!({"t":"error","code":"rate_limited","message":"m","fatal":false,"id":id,"retry_after_ms":3_000}),
    );
    assert!(matches!(rig.events()[..], [Event::Failed { .. }]));
}

#[test]
fn a_file_goes_in_parts_one_at_a_time_with_progress() {
    let mut rig = Rig::new();
    rig.connect();
    rig.take();
    rig.events();
    rig.writes = false;
    let id = rig.submit(file(2_500_000)).unwrap();
    let after = rig.text("after");
    assert_eq!(rig.sent.len(), 1, "the next part waits until this one is written");
    // The answer to a card does not wait for the file.
    rig.submit(Request::Answer { prompt_id: "p".into(), option_id: "deny".into(), text: None }).unwrap();
    while rig.unwritten > 0 {
        rig.written();
    }
    let sent = rig.take();
    let order: Vec<_> = sent.iter().map(|f| f["t"].as_str().unwrap()).collect();
    assert_eq!(order, ["media", "prompt", "media", "media", "ping", "text"]);
    assert_eq!(of(&sent, "text")[0]["id"], after);
    let mut whole = vec![];
    for (i, part) in of(&sent, "media").into_iter().enumerate() {
        assert_eq!((&part["id"], &part["part"], &part["parts"]), (&json!(id), &json!(i), &json!(3)));
        assert_eq!(part.get("caption").is_some(), i == 0);
        whole.extend(protocol::base64::decode(part["data"].as_str().unwrap(), i == 0, 8_000_000).unwrap());
    }
    assert_eq!(whole, vec![1; 2_500_000]);
    let progress: Vec<_> = rig
        .events()
        .into_iter()
        .filter_map(|e| if let Event::Progress { sent, total, .. } = e { Some((sent, total)) } else { None })
        .collect();
    assert_eq!(progress, [(1_000_000, 2_500_000), (2_000_000, 2_500_000), (2_500_000, 2_500_000)]);
}

#[test]
fn a_cut_upload_starts_from_part_0_under_the_same_id() {
    let mut rig = Rig::new();
    rig.connect();
    rig.writes = false;
    let id = rig.submit(file(2_500_000)).unwrap();
    rig.written();
    rig.take();
    rig.feed(Input::Closed { code: None });
    rig.writes = true;
    rig.again();
    let sent = rig.take();
    let parts: Vec<_> = of(&sent, "media").iter().map(|f| (f["id"].clone(), f["part"].clone())).collect();
    assert_eq!(parts, [(json!(id), json!(0)), (json!(id), json!(1)), (json!(id), json!(2))]);
}

#[test]
fn an_answer_stays_until_its_card_is_done() {
    let mut rig = Rig::new();
    rig.connect();
    let answer =
        |option: &str| Request::Answer { prompt_id: "p".into(), option_id: option.into(), text: None };
    rig.submit(answer("once")).unwrap();
    rig.submit(answer("deny")).unwrap();
    rig.take();
    rig.feed(Input::Closed { code: None });
    rig.again();
    assert_eq!(
        of(&rig.take(), "prompt"),
        [&json!({"t":"prompt","prompt_id":"p","option_id":"deny"})],
        "only the newest"
    );
    rig.frame(json!({"t":"prompt_done","id":"p","option_id":"deny"}));
    assert_eq!(rig.client.unsettled(), 0);
    rig.submit(answer("once")).unwrap();
    rig.events();
    rig.frame(json!({"t":"error","code":"agent_offline","message":"m","fatal":false,"id":"p"}));
    assert!(
        matches!(&rig.events()[..], [Event::Failed { id, .. }] if id == "p"),
        "withdrawn: the person decides again"
    );
}

#[test]
fn a_question_answered_by_the_next_text_keeps_its_place() {
    let mut rig = Rig::new();
    rig.connect();
    rig.writes = false;
    rig.submit(file(2_000_000)).unwrap();
    rig.text("before");
    rig.submit(Request::Answer { prompt_id: "p".into(), option_id: "other".into(), text: None }).unwrap();
    rig.text("the answer");
    while rig.unwritten > 0 {
        rig.written();
    }
    let order: Vec<_> = rig
        .sent
        .iter()
        .map(|f| f["t"].as_str().unwrap())
        .filter(|t| *t == "text" || *t == "prompt")
        .collect();
    assert_eq!(order, ["text", "prompt", "text"]);
}

#[test]
fn deliver_ends_with_its_result() {
    let mut rig = Rig::with(|c| c.device = None);
    rig.feed(Input::Start);
    rig.feed(Input::Opened);
    assert_eq!(rig.take()[0].get("device"), None);
    rig.frame(json!({"t":"ready","v":1}));
    let mut out = vec![];
    let deliver = || Request::Deliver { target: "phone".into(), text: "hi".into(), queue: true };
    rig.client.submit(deliver(), Some("mine".into()), rig.now, &mut out).unwrap();
    assert_eq!(rig.client.submit(deliver(), Some("mine".into()), rig.now, &mut vec![]), Err(SubmitError::Id));
    rig.carry_out(out);
    assert_eq!(rig.sent, [json!({"t":"deliver","id":"mine","target":"phone","text":"hi","offline":"queue"})]);
    rig.events();
    rig.frame(json!({"t":"deliver_done","id":"mine","target":"phone","state":"queued"}));
    assert!(matches!(&rig.events()[..], [Event::Delivered { id, .. }] if id == "mine"));
}

#[test]
fn the_outbox_is_bounded_and_says_so() {
    let mut rig = Rig::with(|c| (c.outbox_items, c.outbox_bytes) = (3, 1_000_000));
    for t in ["a", "b", "c"] {
        rig.text(t);
    }
    assert_eq!(rig.submit(Request::Text("d".into())), Err(SubmitError::Full));
    assert_eq!(
        SubmitError::Full.words(protocol::words::Lang::En),
        "Too much is waiting to be sent: wait for the connection and try again"
    );
    rig.connect();
    rig.pong();
    // What was accepted makes room.
    rig.text("d");
    assert_eq!(rig.submit(Request::Text(" \n".into())), Err(SubmitError::Empty));
    assert_eq!(rig.submit(Request::Text("я".repeat(12_001))), Err(SubmitError::LongText(12_000)));
    assert_eq!(rig.submit(file(0)), Err(SubmitError::EmptyFile));
    assert_eq!(rig.submit(file(8_388_609)), Err(SubmitError::LargeFile(8_388_608)));
    assert_eq!(rig.submit(file(1_000_001)), Err(SubmitError::Full));
}

#[test]
fn few_are_in_flight_at_a_time() {
    let mut rig = Rig::new();
    for i in 0..40 {
        rig.text(&i.to_string());
    }
    rig.connect();
    assert_eq!(of(&rig.sent, "text").len(), 16);
    rig.pong();
    assert_eq!(of(&rig.sent, "text").len(), 32);
}

#[test]
fn deadlines_of_connecting_hello_and_silence() {
    let mut rig = Rig::new();
    rig.feed(Input::Start);
    rig.pass(15_000);
    assert_eq!(rig.closes, [None]);
    assert!(matches!(rig.events()[1], Event::Offline { why: Why::Late, .. }));
    rig.retry();
    rig.feed(Input::Opened);
    rig.pass(15_000);
    assert_eq!(rig.closes, [None, None]);
    // A server that is there answers the ping after a quiet time.
    rig.again();
    rig.take();
    for _ in 0..10 {
        rig.pass(30_000);
        assert_eq!(of(&rig.sent, "ping").len(), 1);
        rig.pong();
        rig.take();
    }
    // One that is not is left.
    rig.events();
    rig.pass(75_000);
    assert_eq!(rig.closes.len(), 3);
    assert!(rig.events().iter().any(|e| matches!(e, Event::Offline { why: Why::Silent, .. })));
}

#[test]
fn a_slow_upload_is_no_silence_as_long_as_the_server_pings() {
    let mut rig = Rig::new();
    rig.connect();
    rig.writes = false;
    rig.submit(file(2_000_000)).unwrap();
    for _ in 0..12 {
        rig.pass(25_000);
        rig.feed(Input::Alive);
    }
    assert!(rig.closes.is_empty());
    rig.pass(75_000);
    assert_eq!(rig.closes, [None]);
}

#[test]
fn a_steady_connection_makes_the_next_wait_short() {
    let mut rig = Rig::with(|c| c.seed = [3; 32]);
    for _ in 0..12 {
        rig.connect();
        rig.feed(Input::Closed { code: None });
    }
    assert_eq!(rig.client.backoff.ceiling(), 30_000, "ready and gone at once is no success");
    rig.connect();
    rig.feed(Input::Opened);
    rig.frame(ready());
    rig.pass(10_000);
    rig.feed(Input::Closed { code: None });
    assert_eq!(rig.client.backoff.ceiling(), 1_000);
}

#[test]
fn chunks_and_edits() {
    let mut rig = Rig::new();
    rig.connect();
    rig.events();
    rig.frame(message("m", "one ", 0, 2, false, false));
    rig.frame(message("m", "two", 1, 2, true, false));
    assert_eq!(
        rig.messages(),
        [("m".into(), "one ".into(), false, false), ("m".into(), "one two".into(), true, true)]
    );
    // An edit replaces all chunks; the same again is nothing.
    rig.frame(message("m", "new", 0, 1, true, true));
    rig.frame(message("m", "new", 0, 1, true, true));
    assert_eq!(rig.messages(), [("m".into(), "new".into(), true, true)]);
    // A replay in chunks begins anew.
    rig.frame(message("m", "x", 0, 2, false, false));
    rig.frame(message("m", "y", 1, 2, true, false));
    assert_eq!(
        rig.messages(),
        [("m".into(), "x".into(), false, true), ("m".into(), "xy".into(), true, true)]
    );
    // The tail of a reply that could not be edited is an ordinary message.
    rig.frame(message("s", "part", 0, 1, false, true));
    rig.frame(message("s", "part", 0, 1, true, true));
    rig.frame(message("t", " tail", 0, 1, true, false));
    assert_eq!(
        rig.messages(),
        [
            ("s".into(), "part".into(), false, false),
            ("s".into(), "part".into(), true, true),
            ("t".into(), " tail".into(), true, false)
        ]
    );
    rig.frame(message("bad", "x", 2, 2, true, false));
    assert!(matches!(rig.events()[..], [Event::Damaged(_)]));
}

#[test]
fn a_replay_after_a_cut_draws_nothing_twice() {
    let mut rig = Rig::new();
    rig.connect();
    rig.frame(message("m", "half", 0, 1, false, true));
    rig.feed(Input::Closed { code: None });
    rig.again();
    rig.events();
    rig.frame(message("m", "half and whole", 0, 1, true, true));
    assert_eq!(rig.messages(), [("m".into(), "half and whole".into(), true, true)]);
}

fn part(id: &str, part: u32, parts: u32, data: &[u8]) -> Value {
    json!({"t":"media","id":id,"kind":"document","mime":"text/plain","filename":"a.txt","caption":"c","part":part,"parts":parts,
        "final":part + 1 == parts,"size":9,"data":protocol::base64::encode(data)})
}

fn files(rig: &mut Rig) -> Vec<(Vec<u8>, bool)> {
    rig.events()
        .into_iter()
        .filter_map(|e| if let Event::Media(f) = e { Some((f.bytes, f.redraw)) } else { None })
        .collect()
}

#[test]
fn files_from_the_server() {
    let mut rig = Rig::new();
    rig.connect();
    // Any order.
    rig.frame(part("f", 2, 3, b"ghi"));
    rig.frame(part("f", 0, 3, b"abc"));
    rig.frame(part("f", 1, 3, b"def"));
    assert_eq!(files(&mut rig), [(b"abcdefghi".to_vec(), false)]);
    // The same again, as after a lost proof: nothing. Another file under the id: a redraw.
    for (i, data) in [b"abc", b"def", b"ghi"].into_iter().enumerate() {
        rig.frame(part("f", u32::try_from(i).unwrap(), 3, data));
    }
    assert_eq!(files(&mut rig), []);
    rig.frame(part("f", 0, 1, b"new"));
    assert_eq!(files(&mut rig), [(b"new".to_vec(), true)]);
    // Part 0 again begins anew.
    rig.frame(part("g", 0, 3, b"old"));
    rig.frame(part("g", 1, 3, b"old"));
    rig.frame(part("g", 0, 2, b"one"));
    rig.frame(part("g", 1, 2, b"two"));
    assert_eq!(files(&mut rig), [(b"onetwo".to_vec(), false)]);
    // A cut: from part 0 under the same id.
    rig.frame(part("h", 0, 2, b"x"));
    rig.feed(Input::Closed { code: None });
    rig.again();
    rig.frame(part("h", 0, 2, b"x"));
    rig.frame(part("h", 1, 2, b"y"));
    assert_eq!(files(&mut rig), [(b"xy".to_vec(), false)]);
}

#[test]
fn a_file_without_end_takes_no_memory() {
    let mut rig = Rig::with(|c| c.file_bytes = 10);
    rig.connect();
    rig.events();
    rig.frame(part("f", 0, 3, b"abcdef"));
    rig.frame(part("f", 1, 3, b"abcdef"));
    assert!(matches!(rig.events()[..], [Event::Damaged(_)]));
    rig.frame(part("f", 2, 3, b"abc"));
    assert!(rig.events().is_empty(), "the rest of it is ignored");
    rig.frame(part("f", 0, 1, b"abc"));
    assert_eq!(files(&mut rig).len(), 1, "until part 0 comes again");
}

#[test]
fn presence_never_sticks() {
    let mut rig = Rig::new();
    rig.connect();
    rig.events();
    rig.frame(json!({"t":"typing"}));
    rig.frame(json!({"t":"typing"}));
    rig.frame(json!({"t":"avatar","state":"thinking"}));
    rig.frame(json!({"t":"avatar","state":"thinking"}));
    rig.frame(json!({"t":"avatar","state":"dancing"}));
    assert!(matches!(
        rig.events()[..],
        [Event::Typing(_), Event::Avatar(protocol::server::AvatarState::Thinking), Event::Damaged(_)]
    ));
    rig.feed(Input::Closed { code: None });
    assert!(
        matches!(&rig.events()[..], [Event::Typing(t), Event::Avatar(protocol::server::AvatarState::Idle), Event::Offline { .. }] if t.stop)
    );
    rig.again();
    rig.frame(json!({"t":"typing","ttl_ms":5_000}));
    rig.events();
    rig.pass(4_999);
    assert!(rig.events().is_empty());
    rig.pass(1);
    assert!(matches!(&rig.events()[..], [Event::Typing(t)] if t.stop));
}

fn card(id: &str, style: &str) -> Value {
    json!({"t":"prompt","id":id,"kind":"exec_approval","text":"run?","command":"ls","options":[{"id":"once","label":"Once","style":style},
        {"id":"deny","label":"No","style":"danger"}],"session":"mobile:d1","timeout_seconds":60,"description":null})
}

#[test]
fn cards_end_at_the_latest_by_themselves() {
    let mut rig = Rig::new();
    rig.connect();
    rig.events();
    rig.frame(card("p", "sparkling"));
    assert!(matches!(&rig.events()[..], [Event::Card(c)] if c.options.len() == 2));
    rig.frame(json!({"t":"prompt","id":"q","kind":"clarify","text":"?","options":[],"timeout_seconds":1}));
    assert!(matches!(rig.events()[..], [Event::Damaged(_)]));
    rig.feed(Input::Closed { code: None });
    rig.events();
    rig.pass(70_000);
    assert!(rig.events().iter().any(|e| matches!(e, Event::CardDone(d) if d.id == "p" && d.expired)));
}

#[test]
fn unknown_frames_and_lone_surrogates() {
    let mut rig = Rig::new();
    rig.connect();
    rig.events();
    rig.frame(json!({"t":"some-new-frame","field":1}));
    rig.feed(Input::Frame(
        r#"{"t":"message","id":"m","text":"hi \ud83d there","final":true,"new":{"a":null}}"#.into(),
    ));
    assert_eq!(rig.messages(), [("m".into(), "hi \u{fffd} there".into(), true, false)]);
    for rubbish in [
        "",
        "[]",
        "3",
        "null",
        "{\"t\":3}",
        "{\"t\":\"message\"}",
        "{\"t\":\"media\",\"id\":7}",
        &"[".repeat(100_000),
    ] {
        rig.feed(Input::Frame(rubbish.into()));
        assert!(matches!(rig.events()[..], [Event::Damaged(_)]), "{rubbish:.20}");
    }
    assert!(rig.client.is_online());
}

#[test]
fn stop_is_the_end() {
    let mut rig = Rig::new();
    rig.connect();
    rig.feed(Input::Stop);
    assert_eq!(rig.closes, [Some(1000)]);
    rig.feed(Input::Closed { code: None });
    rig.pass(1_000_000);
    assert_eq!(rig.connects, 1);
    assert!(matches!(rig.events().last(), Some(Event::Stopped)));
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
        Just(json!("idle")),
        Just(json!("once")),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::hash_map("[a-z]{1,6}", inner, 0..3)
                .prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

/// A frame of the protocol with some fields replaced or removed, or any text.
fn any_frame() -> impl Strategy<Value = String> {
    let base = prop_oneof![
        Just(ready()),
        Just(message("m", "text", 0, 2, false, true)),
        Just(message("m", "text", 1, 2, true, false)),
        Just(part("f", 0, 2, b"abc")),
        Just(part("f", 1, 2, b"abc")),
        Just(card("p", "primary")),
        Just(json!({"t":"prompt_done","id":"p","option_id":"once","expired":true})),
        Just(json!({"t":"avatar","state":"thinking"})),
        Just(json!({"t":"typing","ttl_ms":5})),
        Just(json!({"t":"pong","ts":1})),
        Just(json!({"t":"error","code":"internal","message":"m","fatal":false,"id":"p","retry_after_ms":5})),
        Just(json!({"t":"deliver_done","id":"x","target":"d","state":"queued"})),
    ];
    let damaged =
        (base, prop::collection::vec((any::<prop::sample::Index>(), prop::option::of(any_json())), 0..3))
            .prop_map(|(mut frame, changes)| {
                for (at, value) in changes {
                    let map = frame.as_object_mut().unwrap();
                    let key = map.keys().nth(at.index(map.len().max(1))).cloned();
                    match (key, value) {
                        (Some(key), Some(value)) => drop(map.insert(key, value)),
                        (Some(key), None) if map.len() > 1 => drop(map.remove(&key)),
                        _ => {}
                    }
                }
                frame.to_string()
            });
    prop_oneof![4 => damaged, 1 => ".{0,40}"]
}

fn any_input() -> impl Strategy<Value = Input> {
    prop_oneof![
        1 => Just(Input::Start),
        3 => Just(Input::Opened),
        1 => prop::option::of(any::<u16>()).prop_map(|status| Input::ConnectFailed { status, detail: String::new() }),
        12 => any_frame().prop_map(Input::Frame),
        3 => Just(Input::Frame(ready().to_string())),
        1 => Just(Input::Alive),
        4 => Just(Input::Sent),
        1 => prop::option::of(prop_oneof![Just(1009), Just(1012), Just(1007), any::<u16>()]).prop_map(|code| Input::Closed { code }),
        6 => Just(Input::Tick),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_wait_is_under_its_ceiling(seed: u64, first in 1u64..5_000, cap in 1u64..100_000, n in 1usize..80) {
        let mut backoff = Backoff::new(seed, first, cap);
        for attempt in 0..n {
            let ceiling = backoff.ceiling();
            let expected = if attempt < 40 { (u128::from(first) << attempt).min(u128::from(cap)) } else { u128::from(cap) };
            prop_assert_eq!(u128::from(ceiling), expected);
            prop_assert!(backoff.wait() <= ceiling);
        }
        backoff.reset();
        prop_assert_eq!(backoff.ceiling(), first.min(cap));
    }

    #[test]
    fn waits_are_spread_over_the_whole_range(seed: u64) {
        let (mut low, mut high) = (0, 0);
        for i in 0..200u64 {
            let wait = Backoff::new(seed.wrapping_add(i), 30_000, 30_000).wait();
            if wait < 15_000 { low += 1 } else { high += 1 }
        }
        prop_assert!(low > 50 && high > 50, "{} {}", low, high);
    }

    #[test]
    fn joining_gives_the_text_back(chunks in prop::collection::vec(".{0,12}", 1..20)) {
        let mut rig = Rig::new();
        rig.connect();
        let total = u32::try_from(chunks.len()).unwrap();
        for (i, chunk) in (0u32..).zip(&chunks) {
            rig.frame(message("m", chunk, i, total, i + 1 == total, false));
        }
        let last = rig.messages().pop().unwrap();
        prop_assert_eq!(last.1, chunks.concat());
        prop_assert!(last.2);
    }

    #[test]
    fn parts_in_any_order_and_twice(data in prop::collection::vec(any::<u8>(), 1..200), size in 1usize..40, order in any::<u64>()) {
        let mut rig = Rig::new();
        rig.connect();
        let parts: Vec<_> = data.chunks(size).collect();
        let total = u32::try_from(parts.len()).unwrap();
        // Every part twice but the first, whose second coming would begin the file anew.
        let mut sequence: Vec<usize> = (0..parts.len()).chain(1..parts.len()).collect();
        let mut random = order;
        for i in (1..sequence.len()).rev() {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            sequence.swap(i, usize::try_from(random >> 33).unwrap() % (i + 1));
        }
        for i in sequence {
            rig.frame(part("f", u32::try_from(i).unwrap(), total, parts[i]));
        }
        prop_assert_eq!(files(&mut rig), vec![(data, false)]);
    }

    /// Whatever the server and the line do: no panic, nothing accepted twice, one id for one text, and each text that was not
    /// reported as failed reaches a server that is there at last.
    #[test]
    fn no_rubbish_panics_and_no_text_is_lost(steps in prop::collection::vec((any_input(), 0u64..40_000, any::<bool>()), 0..60)) {
        let mut rig = Rig::with(|c| c.keep_ms = 0);
        rig.writes = false;
        rig.feed(Input::Start);
        let mut texts = vec![];
        for (input, pause, say) in steps {
            if say && let Ok(id) = rig.submit(Request::Text(format!("text {}", texts.len()))) {
                texts.push(id);
            }
            rig.feed(input);
            rig.now += pause;
        }
        // At last there is a server that behaves.
        rig.writes = true;
        rig.feed(Input::Closed { code: None });
        rig.feed(Input::ConnectFailed { status: None, detail: String::new() });
        rig.pass(700_000);
        rig.feed(Input::Stop);
        rig.feed(Input::Start);
        rig.feed(Input::Opened);
        rig.frame(ready());
        for _ in 0..200 {
            if rig.client.unsettled() == 0 {
                break;
            }
            rig.pong();
            rig.pass(100);
        }
        prop_assert_eq!(rig.client.unsettled(), 0);
        let told = rig.events();
        for (i, id) in texts.iter().enumerate() {
            let words = format!("text {i}");
            prop_assert!(rig.sent.iter().filter(|f| f["text"] == words.as_str()).all(|f| f["id"] == id.as_str()));
            let accepted = told.iter().filter(|e| matches!(e, Event::Accepted { id: a } if a == id)).count();
            let failed = told.iter().filter(|e| matches!(e, Event::Failed { id: a, .. } if a == id)).count();
            prop_assert!(accepted <= 1 && failed <= 1);
            prop_assert!(accepted + failed >= 1, "text {} has no end", i);
        }
    }
}
