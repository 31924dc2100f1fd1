//! Runs the embedded agent: one task for each of its lives, and one that starts the next.
//!
//! An agent that ends itself (`/die`) or panics is started again with an empty memory, and the core is told so. In a
//! release build a panic ends the whole process instead (`panic = "abort"`): the service manager starts it again, and
//! nothing that was said is lost.

use std::time::Duration;

use agent::{Agent, Flow};
use delivery::{AgentId, Attach, Input};
use protocol::link::ToAgent;
use tokio::{
    sync::mpsc,
    time::{Instant, MissedTickBehavior, interval_at, sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::{
    clock::Clock,
    config::AgentChoice,
    inlet::{HubGone, Inlet, Outside},
};

/// An embedded agent gives a sign of life so often.
const ALIVE: Duration = Duration::from_secs(5);
/// Longest pause before an agent that keeps ending is started again.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// An agent that lived so long starts again at once.
const LIVED: Duration = Duration::from_secs(10);

/// Why a life ended.
enum End {
    /// The agent ended itself.
    Itself,
    /// The hub let go of it, or is gone.
    LetGo,
}

fn make(choice: AgentChoice) -> Option<Box<dyn Agent>> {
    match choice {
        AgentChoice::Demo => Some(Box::new(agent::Demo::new())),
        AgentChoice::Echo => Some(Box::new(agent::Echo::new())),
        AgentChoice::None => None,
    }
}

/// Keeps the chosen agent running until `stop`, or until the hub lets go of it.
pub(crate) async fn keep(choice: AgentChoice, hub: Inlet, clock: Clock, stop: CancellationToken) {
    let mut pause = Duration::ZERO;
    loop {
        let Some(agent) = make(choice) else { return };
        let number = hub.number();
        let attach = Attach {
            name: agent.name().to_owned(),
            // Fixed, since an embedded agent goes on from what is stored; `fresh`: its memory is empty each time.
            instance: format!("embedded-{}", choice.name()),
            fresh: true,
        };
        let (frames, from_hub) = mpsc::unbounded_channel();
        if hub.send(Outside::Attached { agent: number, attach, frames }).await.is_err() {
            return;
        }
        let born = Instant::now();
        // A task of its own, so that a panic in it is seen here and ends nothing else.
        let mut life = tokio::spawn(live(agent, number, from_hub, hub.clone(), clock));
        let ended = tokio::select! {
            () = stop.cancelled() => {
                life.abort();
                return;
            }
            ended = &mut life => ended,
        };
        match ended {
            Ok(End::LetGo) => return,
            Ok(End::Itself) => tracing::info!("the embedded agent ended and is started again"),
            Err(e) => tracing::error!("the embedded agent failed and is started again: {e}"),
        }
        let gone = Input::AgentDetached { agent: number, ended: true };
        if hub.input(gone).await.is_err() {
            return;
        }
        pause = if born.elapsed() >= LIVED { Duration::ZERO } else { pause };
        tokio::select! {
            () = stop.cancelled() => return,
            () = sleep(pause) => {}
        }
        pause = (pause * 2).clamp(Duration::from_millis(100), LONGEST_PAUSE);
    }
}

/// One life.
async fn live(
    mut agent: Box<dyn Agent>,
    number: AgentId,
    mut frames: mpsc::UnboundedReceiver<ToAgent>,
    hub: Inlet,
    clock: Clock,
) -> End {
    let mut alive = interval_at(Instant::now() + ALIVE, ALIVE);
    alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut calls = Vec::new();
    loop {
        let deadline = agent.deadline();
        let due = async {
            match deadline {
                Some(at) => sleep_until(clock.instant(at)).await,
                None => std::future::pending().await,
            }
        };
        let flow = tokio::select! {
            frame = frames.recv() => match frame {
                Some(frame) => agent.handle(frame, clock.now(), &mut calls),
                None => return End::LetGo,
            },
            () = due => {
                let now = clock.now();
                // A far deadline is slept towards in steps.
                if deadline.is_some_and(|at| at > now) { Flow::On } else { agent.tick(now, &mut calls) }
            }
            _ = alive.tick() => {
                if let Err(HubGone) = hub.input(Input::AgentAlive { agent: number }).await {
                    return End::LetGo;
                }
                Flow::On
            }
        };
        if !calls.is_empty() {
            // All calls of one step share one commit.
            let calls = std::mem::take(&mut calls);
            if let Err(HubGone) = hub.input(Input::FromAgent { agent: number, calls }).await {
                return End::LetGo;
            }
        }
        if flow == Flow::Ended {
            return End::Itself;
        }
    }
}
