//! Deadlines, rates and back-pressure in virtual time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::{sync::Arc, time::Duration};

use common::{Ev, FIN, PING, PONG, TEXT, frame, head, in_memory, read_close, read_frame};
use hermes_mobile_wire::{In, Out, Why, WireConfig, server};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::{Semaphore, mpsc},
    time::{Instant, sleep, timeout},
};

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Virtual time has a grain of one millisecond.
fn about(since: Instant, expected: Duration) {
    let took = since.elapsed();
    assert!(took >= expected && took < expected + Duration::from_millis(20), "{took:?}, not {expected:?}");
}

#[tokio::test(start_paused = true)]
async fn field_a_peer_that_answers_pings_stays_and_one_that_is_silent_goes_after_75_seconds() {
    let start = Instant::now();
    let mut pair = in_memory(WireConfig::default(), 4096);
    for number in 1..=24 {
        assert_eq!(
            read_frame(&mut pair.peer).await.unwrap(),
            (FIN | PING, vec![]),
            "keep-alive pings are empty"
        );
        about(start, secs(25 * number));
        pair.peer.write_all(&frame(FIN | PONG, b"")).await.unwrap();
    }
    let last = Instant::now();
    assert_eq!(pair.event().await, Ev::Closed(None, Why::Silent));
    about(last, secs(75));
    pair.task.await.unwrap();
    about(last, secs(75));
    // Two more pings, a last word, the end.
    assert_eq!(read_frame(&mut pair.peer).await.unwrap().0, FIN | PING);
    assert_eq!(read_frame(&mut pair.peer).await.unwrap().0, FIN | PING);
    assert_eq!(read_close(&mut pair.peer).await, Some(1001));
}

#[tokio::test(start_paused = true)]
async fn bytes_of_a_slow_large_frame_are_signs_of_life() {
    let mut pair = in_memory(WireConfig::default(), 4096);
    pair.peer.write_all(&head(FIN | TEXT, 20)).await.unwrap();
    for _ in 0..20 {
        sleep(secs(70)).await;
        pair.peer.write_all(b"a").await.unwrap();
    }
    assert_eq!(pair.event().await, Ev::Text("a".repeat(20)));
}

#[tokio::test(start_paused = true)]
async fn field_a_peer_that_reads_nothing_is_cut_after_15_seconds_and_a_slow_one_is_not() {
    let mut pair = in_memory(WireConfig::default(), 1000);
    pair.send(Out::Text("a".repeat(100_000)));
    // Slow: some bytes every 14 s.
    let start = Instant::now();
    let mut some = [0; 100];
    for _ in 0..20 {
        sleep(secs(14)).await;
        pair.peer.read_exact(&mut some).await.unwrap();
        pair.peer.write_all(&frame(FIN | PONG, b"")).await.unwrap();
    }
    about(start, secs(280));
    assert!(pair.events.try_recv().is_err(), "nothing was drained, nothing closed");
    let last = Instant::now();
    assert_eq!(pair.events.recv().await, Some(Ev::Closed(None, Why::WriteStood)));
    about(last, secs(15));
    pair.task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_blocked_writer_stops_no_reading_and_drained_counts_what_the_socket_took() {
    let mut pair = in_memory(WireConfig::default(), 1000);
    let texts = [0, 10, 70_000, 5, 3000].map(|length| "t".repeat(length));
    for text in &texts {
        pair.send(Out::Text(text.clone()));
    }
    pair.send(Out::Ping(9));
    for number in 0..200 {
        pair.peer.write_all(&frame(FIN | TEXT, format!("{number}").as_bytes())).await.unwrap();
        assert_eq!(
            pair.events.recv().await,
            Some(Ev::Text(number.to_string())),
            "read while the writer stands"
        );
    }
    pair.peer.write_all(&frame(FIN | PONG, &5_u64.to_be_bytes())).await.unwrap();
    assert_eq!(pair.events.recv().await, Some(Ev::Pong(5)));
    for text in &texts {
        assert!(read_frame(&mut pair.peer).await.unwrap() == (FIN | TEXT, text.as_bytes().to_vec()));
    }
    assert_eq!(read_frame(&mut pair.peer).await.unwrap(), (FIN | PING, 9_u64.to_be_bytes().to_vec()));
    let mut drained = 0;
    while drained < 73_015 {
        let Some(Ev::Drained(bytes)) = pair.events.recv().await else { panic!("only drained") };
        drained += bytes;
    }
    assert_eq!(drained, 73_015);
    sleep(secs(1)).await;
    assert!(pair.events.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_slow_consumer_holds_its_peer_back_and_stops_no_writing() {
    let (mut peer, io) = tokio::io::duplex(1000);
    let (out, outbound) = hermes_mobile_wire::queue();
    let (tell, mut events) = mpsc::unbounded_channel();
    let gate = Arc::new(Semaphore::new(0));
    let pass = Arc::clone(&gate);
    let task = tokio::spawn(server(io, WireConfig::default()).run(outbound, move |event: In<'_>| {
        let slow = matches!(event, In::Text(_));
        let (event, tell, pass) = (Ev::from(event), tell.clone(), Arc::clone(&pass));
        async move {
            let _ = tell.send(event);
            if slow {
                pass.acquire().await.unwrap().forget();
            }
        }
    }));
    // One is taken, and then the buffers fill: the peer is held back.
    let text = frame(FIN | TEXT, &[b'a'; 500]);
    let mut written = 0;
    while written < 5000 && timeout(secs(1), peer.write_all(&text)).await.is_ok() {
        written += 1;
    }
    assert!(matches!(events.recv().await, Some(Ev::Text(_))));
    assert!(events.try_recv().is_err(), "one event at a time");
    assert!(written <= (8192 + 1000) / 500 + 1, "{written} messages of 500 bytes are bounded by the buffers");
    // Writing goes on, and our own slowness is nobody's silence.
    sleep(secs(300)).await;
    let mut pings = 0;
    out.send(Out::Text("still here".into())).unwrap();
    loop {
        match read_frame(&mut peer).await.unwrap() {
            (first, payload) if first == FIN | PING => {
                assert!(payload.is_empty());
                pings += 1;
            }
            other => {
                assert_eq!(other, (FIN | TEXT, b"still here".to_vec()));
                break;
            }
        }
    }
    assert!(pings >= 12, "{pings} pings went out meanwhile");
    gate.add_permits(10_000);
    peer.shutdown().await.unwrap();
    let mut texts = 1;
    loop {
        match events.recv().await.unwrap() {
            Ev::Text(_) => texts += 1,
            Ev::Drained(bytes) => assert_eq!(bytes, 10),
            Ev::Closed(None, _) => break,
            other => panic!("{other:?}"),
        }
    }
    assert!(texts >= written, "{texts} of {written}");
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_file_of_8_mib_passes_at_line_speed_and_more_is_read_at_the_rate() {
    let config = WireConfig { limit: 16 << 20, bytes_per_second: 1 << 20, ..WireConfig::default() };
    let mut pair = in_memory(config, 1 << 16);
    let start = Instant::now();
    let part = frame(FIN | TEXT, &vec![b'a'; 4_000_000]);
    for _ in 0..3 {
        pair.peer.write_all(&part).await.unwrap();
        assert!(matches!(pair.event().await, Ev::Text(_)));
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
    for _ in 0..5 {
        pair.peer.write_all(&part).await.unwrap();
        assert!(matches!(pair.event().await, Ev::Text(_)));
    }
    // 32,000,000 bytes, 16 MiB of them for nothing.
    let took = start.elapsed().as_secs_f64();
    assert!((14.3..14.8).contains(&took), "{took} s");
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_sends_pings_and_reads_no_pongs_holds_no_memory() {
    let config = WireConfig { ping_every: Duration::ZERO, ..WireConfig::default() };
    let mut pair = in_memory(config, 1000);
    let ping = frame(FIN | PING, &[b'p'; 100]);
    let mut sent = 0;
    while sent < 5000 && timeout(secs(1), pair.peer.write_all(&ping)).await.is_ok() {
        sent += 1;
    }
    assert!(sent < 300, "{sent} pings were taken though no pong was");
    // It reads again, in time: everything goes on. (The last ping was written in part.)
    for _ in 0..sent {
        assert_eq!(read_frame(&mut pair.peer).await.unwrap().0, FIN | PONG);
    }
    assert!(pair.events.try_recv().is_err(), "still open");
}

#[tokio::test(start_paused = true)]
async fn the_end_is_bounded_in_time_and_in_bytes() {
    // The peer never closes: 5 s.
    let mut pair = in_memory(WireConfig::default(), 1000);
    pair.send(Out::Close(1001));
    assert_eq!(pair.event().await, Ev::Closed(None, Why::Local));
    let start = Instant::now();
    assert_eq!(start.elapsed(), Duration::ZERO);
    pair.task.await.unwrap();
    about(start, secs(5));
    assert_eq!(read_close(&mut pair.peer).await, Some(1001));

    // It never stops sending: 32 MiB.
    let mut pair = in_memory(WireConfig::default(), 1 << 16);
    pair.send(Out::Close(1001));
    let piece = frame(FIN | 2, &[0; 60_000]);
    let mut sent = 0_usize;
    while pair.peer.write_all(&piece).await.is_ok() {
        sent += piece.len();
    }
    assert!((32 << 20..33 << 20).contains(&sent), "{sent}");
    pair.task.await.unwrap();

    // It answers: at once.
    let start = Instant::now();
    let mut pair = in_memory(WireConfig::default(), 1000);
    pair.send(Out::Close(1012));
    assert_eq!(read_frame(&mut pair.peer).await.unwrap(), (FIN | 8, 1012_u16.to_be_bytes().to_vec()));
    pair.peer.write_all(&frame(FIN | 8, &1012_u16.to_be_bytes())).await.unwrap();
    pair.task.await.unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO);

    // It does not even read: the write deadline.
    let start = Instant::now();
    let mut pair = in_memory(WireConfig::default(), 10);
    pair.send(Out::Text("long".repeat(100)));
    pair.send(Out::Close(1012));
    assert_eq!(pair.event().await, Ev::Closed(None, Why::WriteStood));
    about(start, secs(15));
    pair.task.await.unwrap();

    // It reads a byte now and then, so that no write stands for long: 30 s.
    let start = Instant::now();
    let mut pair = in_memory(WireConfig::default(), 10);
    pair.send(Out::Text("long".repeat(1000)));
    pair.send(Out::Close(1012));
    let end = loop {
        tokio::select! {
            event = pair.event() => break event,
            () = sleep(secs(4)) => drop(pair.peer.read_u8().await.unwrap()),
        }
    };
    assert_eq!(end, Ev::Closed(None, Why::WriteStood));
    about(start, secs(30));
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_too_long_closes_by_itself_when_nobody_answers() {
    let mut pair = in_memory(WireConfig::default(), 1000);
    let start = Instant::now();
    pair.peer.write_all(&head(FIN | TEXT, 70_000)).await.unwrap();
    assert_eq!(pair.event().await, Ev::TooLong(70_000));
    assert_eq!(read_frame(&mut pair.peer).await.unwrap(), (FIN | 8, 1009_u16.to_be_bytes().to_vec()));
    about(start, secs(5));
    assert_eq!(pair.event().await, Ev::Closed(None, Why::Local));
}
