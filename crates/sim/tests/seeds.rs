//! A few seeds with every plain `cargo test`, and every planted mistake. The binary `sim` runs many.

#![allow(clippy::panic, reason = "a test that cannot go on fails")]

use hermes_mobile_sim::{Mutant, run, trace};

/// Seeds of the ordinary test.
const SEEDS: u64 = 400;
/// A planted mistake is found within so many.
const MUTANT_SEEDS: u64 = 5_000;

#[test]
fn every_promise_holds() {
    for seed in 0..SEEDS {
        if let Err(what) = run(seed, None) {
            panic!("seed {seed}: {what}\n  cargo run -p hermes-mobile-sim --release -- --seed {seed}");
        }
    }
}

#[test]
fn a_seed_gives_the_same_run_every_time() {
    for seed in 0..40 {
        assert_eq!(trace(seed, None), trace(seed, None), "seed {seed}");
    }
}

fn is_found(mutant: Mutant) {
    let found = (0..MUTANT_SEEDS).any(|seed| run(seed, Some(mutant)).is_err());
    assert!(found, "{} survived {MUTANT_SEEDS} seeds", mutant.name());
}

macro_rules! planted {
    ($($name:ident $mutant:ident)*) => {
        $(
            #[test]
            fn $name() {
                is_found(Mutant::$mutant);
            }
        )*

        #[test]
        fn every_planted_mistake_has_its_test() {
            assert_eq!(Mutant::ALL.to_vec(), [$(Mutant::$mutant),*]);
        }
    };
}

planted! {
    told_before_disk_is_found ToldBeforeDisk
    written_before_disk_is_found WrittenBeforeDisk
    confirmed_before_disk_is_found ConfirmedBeforeDisk
    replay_new_id_is_found ReplayNewId
    proven_at_write_is_found ProvenAtWrite
    ids_forgotten_is_found IdsForgotten
    withdrawn_taken_is_found WithdrawnTaken
    old_state_replayed_is_found OldStateReplayed
    seq_restarts_is_found SeqRestarts
    once_replayed_is_found OnceReplayed
    turn_sticks_is_found TurnSticks
    card_never_expires_is_found CardNeverExpires
}
