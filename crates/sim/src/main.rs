//! Runs the simulation: `cargo run -p hermes-mobile-sim --release -- --seeds 20000`.

use std::{
    cell::Cell,
    process::ExitCode,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Instant,
};

use hermes_mobile_sim::{Mutant, run, trace};

const HELP: &str = "\
--seeds N      run seeds 0 to N-1 (20000)
--seed N       run one seed and print everything that happens in it
--mutant NAME  with a planted mistake
--mutants      run the seeds with each planted mistake until it is found";

/// Failures that are told with their seed; more add nothing.
const TOLD: u64 = 60;

thread_local! {
    static SEED: Cell<u64> = const { Cell::new(0) };
}

static PASSED: AtomicU64 = AtomicU64::new(0);

fn main() -> ExitCode {
    let mut seeds = 20_000;
    let (mut one, mut mutant, mut all) = (None, None, false);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().unwrap_or_default();
        match arg.as_str() {
            "--seeds" => match value().parse() {
                Ok(number) => seeds = number,
                Err(_) => return usage(),
            },
            "--seed" => match value().parse() {
                Ok(number) => one = Some(number),
                Err(_) => return usage(),
            },
            "--mutant" => match Mutant::named(&value()) {
                Some(known) => mutant = Some(known),
                None => return usage(),
            },
            "--mutants" => all = true,
            _ => return usage(),
        }
    }
    // The release profile ends the process at a panic: the seed must be told before that.
    std::panic::set_hook(Box::new(|info| {
        let seed = SEED.get();
        println!("seed {seed}: panic: {info}");
        println!("  cargo run -p hermes-mobile-sim --release -- --seed {seed}");
        println!("{} passed, 1 failed", PASSED.load(Ordering::Relaxed));
        std::process::exit(1);
    }));
    if let Some(seed) = one {
        return tell(seed, mutant);
    }
    if all { each_mutant(seeds) } else { many(seeds, mutant) }
}

fn usage() -> ExitCode {
    eprintln!("{HELP}");
    for mutant in Mutant::ALL {
        eprintln!("    {}", mutant.name());
    }
    ExitCode::from(2)
}

fn tell(seed: u64, mutant: Option<Mutant>) -> ExitCode {
    SEED.set(seed);
    for line in trace(seed, mutant) {
        println!("{line}");
    }
    match run(seed, mutant) {
        Ok(()) => {
            println!("1 passed, 0 failed");
            ExitCode::SUCCESS
        }
        Err(what) => {
            println!("seed {seed}: {what}");
            println!("0 passed, 1 failed");
            ExitCode::FAILURE
        }
    }
}

/// Runs seeds on all cores and hands over what fails as it comes; `stop` ends it at the first failure. How many failed.
fn search(seeds: u64, mutant: Option<Mutant>, stop: bool, tell: impl Fn(u64, &str) + Sync) -> u64 {
    let next = AtomicU64::new(0);
    let failed = AtomicU64::new(0);
    let told = if stop { 1 } else { TOLD };
    let threads = thread::available_parallelism().map_or(1, |n| n.get());
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds {
                        break;
                    }
                    SEED.set(seed);
                    match run(seed, mutant) {
                        Ok(()) => {
                            PASSED.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(what) => {
                            if stop {
                                next.store(seeds, Ordering::Relaxed);
                            }
                            if failed.fetch_add(1, Ordering::Relaxed) < told {
                                tell(seed, &what);
                            }
                        }
                    }
                }
            });
        }
    });
    failed.into_inner()
}

fn many(seeds: u64, mutant: Option<Mutant>) -> ExitCode {
    let begun = Instant::now();
    let name = mutant.map_or_else(String::new, |mutant| format!(" --mutant {}", mutant.name()));
    let failed = search(seeds, mutant, false, |seed, what| {
        println!("seed {seed}: {what}");
        println!("  cargo run -p hermes-mobile-sim --release -- --seed {seed}{name}");
    });
    println!("{:.1} s", begun.elapsed().as_secs_f64());
    println!("{} passed, {failed} failed", PASSED.load(Ordering::Relaxed));
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Every planted mistake must be found.
fn each_mutant(seeds: u64) -> ExitCode {
    let (mut found, mut survived) = (0, 0);
    for mutant in Mutant::ALL {
        let failed = search(seeds, Some(mutant), true, |seed, what| {
            println!("{}: found by seed {seed}: {what}", mutant.name());
            println!(
                "  cargo run -p hermes-mobile-sim --release -- --seed {seed} --mutant {}",
                mutant.name()
            );
        });
        if failed > 0 {
            found += 1;
        } else {
            survived += 1;
            println!("{}: NOT FOUND in {seeds} seeds", mutant.name());
        }
    }
    println!("{found} passed, {survived} failed");
    if survived == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
