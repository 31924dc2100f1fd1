//! What waits to be sent on one connection.
//!
//! A queue of its own because there is one for every connection: an idle one holds a lock, a place for a waker and nothing
//! else, where a general channel keeps a block for its next messages.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use crate::Out;

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Out>,
    /// Of the connection, while it waits.
    waker: Option<Waker>,
    /// The other end is gone.
    ended: bool,
}

type Shared = Arc<Mutex<State>>;

fn lock(shared: &Shared) -> MutexGuard<'_, State> {
    // Nothing in here can panic half way.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The sending end; one for a connection. Dropping it closes the connection with 1001.
#[derive(Debug)]
pub struct Sender(Shared);

/// The connection's end.
#[derive(Debug)]
pub struct Outbound(Shared);

/// The connection is over: nothing more can be sent on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the connection is over")]
pub struct Over;

/// A queue without a bound: who fills it counts ([`crate::In::Drained`]).
#[must_use]
pub fn queue() -> (Sender, Outbound) {
    let shared = Shared::default();
    (Sender(Arc::clone(&shared)), Outbound(shared))
}

impl Sender {
    /// Queues something. Never waits.
    ///
    /// # Errors
    /// [`Over`].
    pub fn send(&self, out: Out) -> Result<(), Over> {
        let mut state = lock(&self.0);
        if state.ended {
            return Err(Over);
        }
        state.waiting.push_back(out);
        let waker = state.waker.take();
        // The connection's thread must find the lock free.
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let mut state = lock(&self.0);
        state.ended = true;
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Outbound {
    /// The next one; `None`: the sender is gone.
    pub(crate) fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<Out>> {
        let mut state = lock(&self.0);
        if let Some(out) = state.waiting.pop_front() {
            if state.waiting.is_empty() {
                state.waiting = VecDeque::new();
            }
            return Poll::Ready(Some(out));
        }
        if state.ended {
            return Poll::Ready(None);
        }
        if !state.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            state.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for Outbound {
    fn drop(&mut self) {
        let mut state = lock(&self.0);
        state.ended = true;
        state.waiting = VecDeque::new();
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test]
    async fn what_is_sent_comes_in_order_and_wakes_who_waits() {
        let (sender, mut outbound) = queue();
        let reader = tokio::spawn(async move {
            let mut got = Vec::new();
            while let Some(Out::Limit(limit)) = poll_fn(|cx| outbound.poll_recv(cx)).await {
                got.push(limit);
            }
            got
        });
        for limit in 0..100 {
            sender.send(Out::Limit(limit)).unwrap();
            tokio::task::yield_now().await;
        }
        drop(sender);
        assert_eq!(reader.await.unwrap(), (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn a_sender_learns_that_the_connection_is_over() {
        let (sender, outbound) = queue();
        assert_eq!(sender.send(Out::Limit(1)), Ok(()));
        drop(outbound);
        assert_eq!(sender.send(Out::Limit(2)), Err(Over));
    }
}
