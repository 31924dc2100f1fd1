//! The listener: accepts sockets, speaks HTTP/1.1 on them with tight limits, and hands them to the routes.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::Router;
use hyper::{Request, body::Incoming, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower_service::Service;

use crate::sockets::{Counted, Sockets};

/// A request's head must be complete within this; so must the next one on a kept-open connection.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// Largest head of a request, bytes: token and headers of a few proxies fit many times.
const HEAD_BYTES: usize = 16 * 1024;
/// Most headers of a request.
const HEADERS: usize = 100;
/// No ordinary HTTP exchange here lasts longer; an upgraded connection leaves HTTP and is not bound by it.
const HTTP_TIME: Duration = Duration::from_secs(60);
/// Pause after a failed `accept` (out of descriptors, out of memory): it heals by itself when connections end.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Who is at the other end of the socket; put into every request.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    /// Moves on with the socket when it is upgraded.
    pub(crate) counted: Counted,
}

/// Accepts until `stop`. Connections go on in `tasks`.
pub(crate) async fn accept(
    listener: TcpListener,
    router: Router,
    sockets: Arc<Sockets>,
    stop: CancellationToken,
    tasks: TaskTracker,
) {
    let mut failing = false;
    let refusals = Arc::new(Semaphore::new(16));
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, address)) => {
                failing = false;
                match sockets.take() {
                    Some(counted) => {
                        let peer = Peer { address, counted };
                        tasks.spawn(serve(stream, peer, router.clone(), stop.clone()));
                    }
                    None => refuse(stream, &refusals, &tasks),
                }
            }
            Err(e) => {
                // One client that hung up early, or no descriptors left: never a reason to stop listening.
                if !std::mem::replace(&mut failing, true) {
                    tracing::warn!("a connection could not be accepted: {e}");
                }
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(ACCEPT_PAUSE) => {}
                }
            }
        }
    }
}

async fn serve(stream: TcpStream, peer: Peer, router: Router, stop: CancellationToken) {
    // Frames are small and someone waits for each.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer.clone());
        // A `Router` is always ready.
        router.clone().call(request)
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEADERS)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let served = timeout(HTTP_TIME, async {
        tokio::select! {
            served = connection.as_mut() => return served,
            () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
        }
        connection.as_mut().await
    })
    .await;
    if let Ok(Err(e)) = served {
        // Rubbish instead of HTTP, a head that is too long or too slow. The text of hyper's error holds nothing of
        // the request.
        tracing::debug!("HTTP connection ended: {e}");
    }
}

/// Says 503 to a socket for which there is no room, without waiting for its request for long. Not to many at once:
/// they too hold descriptors.
fn refuse(mut stream: TcpStream, room: &Arc<Semaphore>, tasks: &TaskTracker) {
    const TEXT: &str =
        "Too many connections, try again later.\nСлишком много соединений, попробуйте позже.\n";
    let Ok(permit) = Arc::clone(room).try_acquire_owned() else { return };
    tasks.spawn(async move {
        let answer = format!(
            "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 10\r\nConnection: close\r\n\
             Content-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\r\n{TEXT}",
            TEXT.len()
        );
        let _ = timeout(Duration::from_secs(1), async {
            // The request is read first: closing on unread bytes would be a reset, which destroys the answer.
            let mut head = [0; 2048];
            let _ = stream.read(&mut head).await;
            let _ = stream.write_all(answer.as_bytes()).await;
            let _ = stream.shutdown().await;
            while matches!(stream.read(&mut head).await, Ok(1..)) {}
        })
        .await;
        drop(permit);
    });
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    async fn listening() -> (SocketAddr, CancellationToken) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        tokio::spawn(accept(listener, Router::new(), Sockets::new(1000), stop.clone(), TaskTracker::new()));
        (address, stop)
    }

    /// In virtual time, which jumps ahead while everybody waits.
    #[tokio::test(start_paused = true)]
    async fn a_head_that_dribbles_in_is_given_up_after_ten_seconds() {
        let (address, _stop) = listening().await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost:").await.unwrap();
        let start = Instant::now();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert!(start.elapsed() >= HEAD_TIME && start.elapsed() < HEAD_TIME * 2, "{:?}", start.elapsed());
        assert!(!answer.starts_with(b"HTTP/1.1 200"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_says_nothing_is_given_up_too() {
        let (address, _stop) = listening().await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        let start = Instant::now();
        let _ = stream.read_to_end(&mut Vec::new()).await;
        assert!(start.elapsed() >= HEAD_TIME && start.elapsed() <= HTTP_TIME, "{:?}", start.elapsed());
    }
}
