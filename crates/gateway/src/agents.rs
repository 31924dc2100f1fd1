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
/// Frames that an embedded agent handles in one step.
const AT_ONCE: usize = 64;
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

/// A new agent of the chosen kind.
pub(crate) fn make(choice: AgentChoice) -> Option<Box<dyn Agent>> {
    match choice {
        AgentChoice::Demo => Some(Box::new(agent::Demo::new())),
        AgentChoice::Echo => Some(Box::new(agent::Echo::new())),
        AgentChoice::None => None,
    }
}

/// Keeps an agent running until `stop`, or until the hub lets go of it. `make` makes each of its lives; `instance` is
/// what the hub knows all of them by.
pub(crate) async fn keep(
    make: impl Fn() -> Option<Box<dyn Agent>>,
    instance: String,
    hub: Inlet,
    clock: Clock,
    stop: CancellationToken,
) {
    let mut pause = Duration::ZERO;
    loop {
        let Some(agent) = make() else { return };
        let number = hub.number();
        let attach = Attach {
            name: agent.name().to_owned(),
            // Fixed, since an embedded agent goes on from what is stored; `fresh`: its memory is empty each time.
            instance: instance.clone(),
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
                Some(frame) => {
                    // What waits is handled in one step, so that it shares a commit.
                    let mut flow = agent.handle(frame, clock.now(), &mut calls);
                    for _ in 1..AT_ONCE {
                        if flow == Flow::Ended {
                            break;
                        }
                        let Ok(frame) = frames.try_recv() else { break };
                        flow = agent.handle(frame, clock.now(), &mut calls);
                    }
                    flow
                }
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

#[cfg(test)]
mod tests {
    use protocol::link::{FromAgent, TurnState};
    use tokio::time::timeout;

    use super::*;

    /// Does as it is told by the presence of a device of that name.
    struct Puppet;

    impl Agent for Puppet {
        fn name(&self) -> &'static str {
            "puppet"
        }
        fn handle(&mut self, frame: ToAgent, _: protocol::Millis, out: &mut Vec<FromAgent>) -> Flow {
            let ToAgent::Presence { device, .. } = frame else { return Flow::On };
            assert!(device != "panic", "the agent's own fault");
            out.push(FromAgent::Turn { device: device.clone(), state: TurnState::On });
            if device == "end" { Flow::Ended } else { Flow::On }
        }
        fn tick(&mut self, _: protocol::Millis, _: &mut Vec<FromAgent>) -> Flow {
            Flow::On
        }
        fn deadline(&self) -> Option<protocol::Millis> {
            None
        }
    }

    #[tokio::test]
    async fn an_agent_that_ends_or_panics_is_started_again_and_the_hub_is_told() {
        let (inlet, mut outside, _, _) = Inlet::new();
        let stop = CancellationToken::new();
        let make = || Some(Box::new(Puppet) as Box<dyn Agent>);
        let kept = tokio::spawn(keep(make, "puppet".to_owned(), inlet, Clock::start(), stop.clone()));
        let mut next = async || timeout(Duration::from_secs(20), outside.recv()).await.unwrap().unwrap();
        let mut numbers = Vec::new();
        for order in ["end", "panic", "go on"] {
            let Outside::Attached { agent, attach, frames } = next().await else { panic!("attaches first") };
            assert_eq!((attach.instance.as_str(), attach.fresh), ("puppet", true));
            assert!(!numbers.contains(&agent), "each life has a number of its own");
            numbers.push(agent);
            frames.send(ToAgent::Presence { device: order.to_owned(), online: true }).unwrap();
            if order != "panic" {
                let Outside::Input { input: Input::FromAgent { agent: from, calls }, .. } = next().await
                else {
                    panic!("{order}: its call comes")
                };
                assert_eq!((from, calls.len()), (agent, 1));
            }
            if order == "go on" {
                drop(frames);
                timeout(Duration::from_secs(20), kept).await.unwrap().unwrap();
                return;
            }
            let Outside::Input { input: Input::AgentDetached { agent: gone, ended }, .. } = next().await
            else {
                panic!("{order}: the hub is told")
            };
            assert_eq!((gone, ended), (agent, true));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_living_agent_gives_signs_of_life() {
        let (inlet, mut outside, _, _) = Inlet::new();
        let stop = CancellationToken::new();
        let make = || Some(Box::new(Puppet) as Box<dyn Agent>);
        let start = Instant::now();
        let kept = tokio::spawn(keep(make, "puppet".to_owned(), inlet, Clock::start(), stop.clone()));
        let Some(Outside::Attached { agent, frames, .. }) = outside.recv().await else { panic!("attaches") };
        for times in 1..=3 {
            let Some(Outside::Input { input: Input::AgentAlive { agent: who }, .. }) = outside.recv().await
            else {
                panic!("a sign of life")
            };
            assert_eq!(who, agent);
            assert!(
                start.elapsed() >= ALIVE * times && start.elapsed() < ALIVE * times + Duration::from_secs(1)
            );
        }
        stop.cancel();
        kept.await.unwrap();
        drop(frames);
    }
}
