//! Planted mistakes, to show that the simulation finds such. Without the feature `mutants` there are none: `is` is a
//! constant, and the branches that ask it are not compiled in.
#![cfg_attr(not(feature = "mutants"), expect(unreachable_pub, reason = "public with the feature"))]

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// What a device said goes to the agent before it is on disk.
    ToldBeforeDisk,
    /// The last frame of an item is written before its batch is committed.
    WrittenBeforeDisk,
    /// The agent gets the result of a call before its batch is committed.
    ConfirmedBeforeDisk,
    /// A replay gives a message a new id.
    ReplayNewId,
    /// An item counts as proven when it is written, not when the pong comes.
    ProvenAtWrite,
    /// The ids that were accepted are forgotten at a restart.
    IdsForgotten,
    /// An answer that was withdrawn may still be taken.
    WithdrawnTaken,
    /// A replay sends every state of a message, not only the last.
    OldStateReplayed,
    /// `seq` begins again at a restart.
    SeqRestarts,
    /// A message that is never to be replayed is replayed.
    OnceReplayed,
    /// The loss of the agent does not end its turn.
    TurnSticks,
    /// The time of a card is never over.
    CardNeverExpires,
}

#[cfg(feature = "mutants")]
mod planted {
    use std::cell::Cell;

    use super::Mutant;

    thread_local! {
        static PLANTED: Cell<Option<Mutant>> = const { Cell::new(None) };
    }

    impl Mutant {
        /// All of them.
        pub const ALL: [Self; 12] = [
            Self::ToldBeforeDisk,
            Self::WrittenBeforeDisk,
            Self::ConfirmedBeforeDisk,
            Self::ReplayNewId,
            Self::ProvenAtWrite,
            Self::IdsForgotten,
            Self::WithdrawnTaken,
            Self::OldStateReplayed,
            Self::SeqRestarts,
            Self::OnceReplayed,
            Self::TurnSticks,
            Self::CardNeverExpires,
        ];

        /// Its name on the command line.
        #[must_use]
        pub const fn name(self) -> &'static str {
            match self {
                Self::ToldBeforeDisk => "told-before-disk",
                Self::WrittenBeforeDisk => "written-before-disk",
                Self::ConfirmedBeforeDisk => "confirmed-before-disk",
                Self::ReplayNewId => "replay-new-id",
                Self::ProvenAtWrite => "proven-at-write",
                Self::IdsForgotten => "ids-forgotten",
                Self::WithdrawnTaken => "withdrawn-taken",
                Self::OldStateReplayed => "old-state-replayed",
                Self::SeqRestarts => "seq-restarts",
                Self::OnceReplayed => "once-replayed",
                Self::TurnSticks => "turn-sticks",
                Self::CardNeverExpires => "card-never-expires",
            }
        }

        /// The one of this name.
        #[must_use]
        pub fn named(name: &str) -> Option<Self> {
            Self::ALL.into_iter().find(|mutant| mutant.name() == name)
        }
    }

    /// Plants a mistake in the cores that run on this thread, or none.
    pub fn set(mutant: Option<Mutant>) {
        PLANTED.set(mutant);
    }

    pub(crate) fn is(mutant: Mutant) -> bool {
        PLANTED.get() == Some(mutant)
    }
}

#[cfg(feature = "mutants")]
pub(crate) use planted::is;
#[cfg(feature = "mutants")]
pub use planted::set;

/// Whether a mistake is planted.
#[cfg(not(feature = "mutants"))]
pub(crate) const fn is(_: Mutant) -> bool {
    false
}
