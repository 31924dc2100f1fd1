//! The checker finds faults: behind a proxy that plants one, exactly the cases of that fault fail.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::{collections::BTreeSet, path::Path, sync::Arc};

use conformance::{NotRun, Options, Outcome, Pool, Report, Target, case, check, profile::Profile};
use futures_util::StreamExt;
use testkit::{
    faults::{FAULTS, Planted},
    proxy::{self, Fault, Mutant},
};

const BIN: &str = env!("CARGO_BIN_EXE_hermes-mobile");
/// So many faults are looked for at once.
const AT_ONCE: usize = 10;
/// Eight mebibytes each: no fault of ours is about them, and each run would carry them again.
const HEAVY: &[&str] = &["file-limit", "file-of-8-mib", "media-open-bytes"];

/// The cases that share their servers with others.
fn shared() -> Vec<String> {
    let cases = case::cases().unwrap().into_iter();
    cases.filter(|case| !case.own && !HEAVY.contains(&case.id.as_str())).map(|case| case.id).collect()
}

async fn behind(pool: &Arc<Pool>, fault: Fault) -> Report {
    let mut options = Options::new(Profile::load("demo").unwrap());
    options.only = shared();
    options.through = Some(Arc::new(move |server| Box::pin(proxy::start(server, fault))));
    check(&Target::Spawn(Arc::clone(pool)), &options).await.unwrap()
}

fn blind() -> Mutant {
    Box::new(|_, _| None)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_planted_fault_fails_its_cases_and_no_other() {
    assert!(FAULTS.len() >= 20);
    let names: BTreeSet<&str> = FAULTS.iter().map(|planted| planted.name).collect();
    assert_eq!(names.len(), FAULTS.len(), "a name is there twice");
    let pool = Arc::new(Pool::new(Path::new(BIN)).unwrap());
    // The proxy itself is no fault.
    let clean = behind(&pool, blind).await;
    assert_eq!(clean.failed(), Vec::<&str>::new(), "{}", clean.text(protocol::words::Lang::En, false));
    let pool = &pool;
    let runs = FAULTS.iter().map(|planted| async move { (planted, behind(pool, planted.fault).await) });
    let runs: Vec<(&Planted, Report)> =
        futures_util::stream::iter(runs).buffer_unordered(AT_ONCE).collect().await;
    let mut wrong = String::new();
    for (planted, report) in runs {
        let (failed, cases) = (report.failed(), planted.cases);
        if failed != cases {
            let text = report.text(protocol::words::Lang::En, false);
            wrong.push_str(&format!("{}: {failed:?} failed in place of {cases:?}\n{text}\n", planted.name));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_case_that_needs_something_says_what_and_is_no_failure() {
    let pool = Arc::new(Pool::new(Path::new(BIN)).unwrap());
    let mut options = Options::new(Profile::load("generic").unwrap());
    options.only = vec!["ping".into(), "stream".into(), "b-ack".into()];
    let report = check(&Target::Spawn(pool), &options).await.unwrap();
    let outcomes: Vec<&Outcome> = report.done.iter().map(|done| &done.outcome).collect();
    assert_eq!(
        outcomes,
        [
            &Outcome::NotRun(NotRun::Key("stream".into())),
            &Outcome::Passed,
            &Outcome::NotOffered("ack".into())
        ]
    );
    assert_eq!(report.failed(), Vec::<&str>::new());
}
