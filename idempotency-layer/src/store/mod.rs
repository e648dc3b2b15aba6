//! A record of every key: claimed by one holder at a time, written only by that holder, replayed to everyone after.
//!
//! [`Store`] is what the layer asks of a database. One record per key walks this path; each arrow is one atomic
//! step in the store and one call here:
//!
//! ```text
//! ABSENT ──claim──► RUNNING ──complete──► RECORDED
//!                    │  ▲ ▲                          RECORDED, TOMBSTONE, FREE ──retention──► ABSENT
//!                    │  │ └── renew (only the holder)
//!    release, or the │  │ claim with the SAME fingerprint: attempt + 1, a new holder
//!    lease lapses    ▼  │
//!                    FREE (still remembers the fingerprint)
//! RUNNING ──forget (nothing ran)─────────────► ABSENT
//! RUNNING ──complete without a response──────► TOMBSTONE (ran, cannot be replayed)
//! RUNNING ──hold, or lapsed under Hold───────► HELD ──resolve──► RECORDED / FREE / ABSENT
//! ```
//!
//! One arrow needs no call: a run that lapses under Hold is HELD from that moment on, and the next claim, if one ever
//! comes, only writes it down.
//!
//! Every implementation keeps these rules, and [`conformance`](crate::conformance) (feature `conformance`) holds any
//! store to them, yours included:
//!
//! 1. Two clocks run, both the store's own. The *lease* says how long a dead holder keeps others out. The
//!    *retention* says how long a key means this request, counted from the record's last write. A record whose lease
//!    is live is never removed; a HELD record never expires, and neither does a RUNNING one under
//!    [`Hold`](UnknownOutcome::Hold), live or lapsed.
//! 2. Durations cross this trait, instants never do.
//! 3. Every write after the claim is fenced by the [`LeaseId`] that claimed. A live id renews and completes even
//!    after its time has lapsed, as long as nobody took over.
//! 4. A RUNNING record under Hold whose lease has lapsed is HELD in the eyes of everyone but its holder: listed, looked
//!    at, and decided as such, which fences its holder. Until somebody claims or decides, its holder goes on by rule 3.
//! 5. A record outlives its lease: another fingerprint is refused before, while and after the run.
//! 6. Every verb may arrive twice, at once or much later, and gives the same answer: a settled record keeps the id
//!    that wrote it. A late duplicate of a claim, on a key that is absent by then or was freed by somebody else, may
//!    at worst leave a lease that nobody holds. When that lapses it obeys its policy like any other: under
//!    [`Hold`](UnknownOutcome::Hold) the key is held until an operator decides.
//! 7. Losing is a value ([`Claim`], [`Write`], [`Renewal`], [`Commit`]), never an `Err`. An `Err` says that the store
//!    could not answer.
//! 8. A record that cannot be read is neither overwritten nor removed, whatever the verb.
//!
//! What a store does *not* promise: that code which lost its lease stops. The holder is told; effects belong into
//! the [transaction](TransactionalStore) or behind an idempotent call.

#[cfg(any(feature = "postgres", feature = "redis", feature = "sqlite"))]
mod code;
mod error;
#[cfg(any(feature = "postgres", feature = "redis", feature = "sqlite"))]
mod headers;
mod held;
mod lease;
mod machine;
mod memory;
mod outcome;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
mod response;
mod shared;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod sweeper;
mod watchers;

pub use self::error::{StoreError, StoreErrorKind};
pub use self::held::{HeldCause, HeldPage, HeldRecord, Page, Resolution};
pub use self::lease::{
    CallerFingerprint, ClaimRequest, Fingerprint, LapsePolicy, Lease, LeaseId, ParseRecordIdError, RecordId, StoreId,
    UnknownOutcome,
};
pub use self::memory::MemoryStore;
pub use self::outcome::{Acquired, Begin, Claim, Commit, Look, Recorded, Renewal, Watch, Write};
#[cfg(feature = "postgres")]
pub use self::postgres::{PostgresStore, PostgresTransaction};
#[cfg(feature = "redis")]
pub use self::redis::RedisStore;
pub use self::response::{Completion, StoredResponse, Tombstone, TombstoneReason};
pub use self::shared::{SharedStore, SharedTransactionalStore};
#[cfg(feature = "sqlite")]
pub use self::sqlite::{SqliteStore, SqliteTransaction};
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub use self::sweeper::Sweeper;

/// Where the records live; see the [module docs](self) for the rules.
///
/// Cloning is cheap and gives another handle on the same store. Futures are `Send`; dropping one at any point leaves
/// the record as it was before or as it is after the verb, never between.
///
/// Every method fails with a [`StoreError`]: [`Unavailable`](StoreErrorKind::Unavailable) when no answer came, so that
/// the verb may or may not have happened; [`Corrupt`](StoreErrorKind::Corrupt) or [`Newer`](StoreErrorKind::Newer)
/// when the record is there but cannot be read; [`Misconfigured`](StoreErrorKind::Misconfigured) when the store cannot
/// work at all as it is set up.
pub trait Store: Clone + Send + Sync + 'static {
    /// Tells this store from any other; clones and wrappers answer the same.
    fn identity(&self) -> StoreId;

    /// Asks to be the holder of a key.
    ///
    /// ABSENT, and FREE or lapsed RUNNING with the same fingerprints, become RUNNING under the request's lease. A
    /// lapsed RUNNING record first obeys the [`LapsePolicy`] it was *claimed* under: it may become HELD instead, and
    /// then the hold is this claim's and as old as this claim. Everything else is left as it is and told. The
    /// fingerprint is compared before the caller.
    ///
    /// The id that holds the running record gets [`Claim::Acquired`] again and its lease starts anew. The id that
    /// settled the record gets what everyone gets, except that it never claims a record that it freed itself: that
    /// is [`Claim::InFlight`].
    fn claim(&self, request: &ClaimRequest) -> impl Future<Output = Result<Claim, StoreError>> + Send;

    /// Starts the lease anew and, with it, the retention.
    ///
    /// A record that this very id has settled answers [`Renewal::Renewed`] and stays as it is, so that a renewal that
    /// crosses the holder's own last write is no loss.
    fn renew(&self, lease: &Lease) -> impl Future<Output = Result<Renewal, StoreError>> + Send;

    /// Writes the outcome: RUNNING becomes RECORDED or TOMBSTONE.
    fn complete(
        &self,
        lease: &Lease,
        completion: &Completion,
    ) -> impl Future<Output = Result<Write, StoreError>> + Send;

    /// Lets the same request run again, as the next attempt: RUNNING becomes FREE.
    fn release(&self, lease: &Lease) -> impl Future<Output = Result<Write, StoreError>> + Send;

    /// Takes the claim back as if it had never been: RUNNING becomes ABSENT. Only for runs that did nothing.
    ///
    /// An absent record answers [`Write::Done`]: there is nothing left of this id.
    fn forget(&self, lease: &Lease) -> impl Future<Output = Result<Write, StoreError>> + Send;

    /// Keeps everyone out until an operator decides: RUNNING becomes HELD.
    fn hold(&self, lease: &Lease) -> impl Future<Output = Result<Write, StoreError>> + Send;

    /// Lists HELD records, and the runs that lapsed under [`Hold`](UnknownOutcome::Hold), in the order of their ids.
    fn held(&self, page: &Page) -> impl Future<Output = Result<HeldPage, StoreError>> + Send;

    /// Carries out an operator's decision on a HELD record, or on a run that lapsed under
    /// [`Hold`](UnknownOutcome::Hold), as [`held`](Self::held) listed it or [`look`](Self::look) found it.
    ///
    /// The decision is fenced by [`HeldRecord::hold`]: however late it arrives, it decides that hold and no later one.
    /// `by` is a fresh [`LeaseId`] for this decision; sending the same decision again under the same id answers
    /// [`Write::Done`], and so does forgetting a record that is absent. [`Write::Fenced`] means that this hold has
    /// ended otherwise. A freed record starts counting its lapsed runs from zero.
    fn resolve(
        &self,
        held: &HeldRecord,
        by: LeaseId,
        resolution: &Resolution,
    ) -> impl Future<Output = Result<Write, StoreError>> + Send;

    /// Reads a record without claiming it: what a request that waits for another's run asks, and an operator who was
    /// told a record's id.
    fn look(&self, record: &RecordId) -> impl Future<Output = Result<Look, StoreError>> + Send;

    /// Subscribes to changes of a record. Subscribe first, [`look`](Self::look) second, await the [`Watch`] third:
    /// then no change is missed that the store can push.
    ///
    /// A push is a hint. A store without one returns [`Watch::never`], and whoever waits polls beside it.
    fn watch(&self, record: &RecordId) -> impl Future<Output = Result<Watch, StoreError>> + Send;
}

/// A [`Store`] whose record can be written in the handler's own transaction, so that record and effect appear together
/// or not at all.
///
/// [`begin`](Self::begin) leaves a mark inside the transaction, and [`complete_in`](Self::complete_in) looks for it: a
/// transaction that the database rolled back by itself, or that the handler's SQL ended, leaves no record without its
/// effect. Implementations see to it that the handler's SQL cannot commit on its own, so that there is no effect
/// without its record either. [`conformance::transactional`](crate::conformance::transactional) checks that on any such
/// store.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no transactions that effects and records could share",
    label = "pass the SQL store that the IdempotencyLayer was made with"
)]
pub trait TransactionalStore: Store {
    /// What the handler gets. Dropping it rolls back.
    type Transaction: Send + 'static;

    /// Opens a transaction for the holder of `lease`, fenced: only the id that holds the running record gets one.
    ///
    /// Fails with [`Unavailable`](StoreErrorKind::Unavailable) when the database did not give one within the store's
    /// own bound.
    fn begin(&self, lease: &Lease) -> impl Future<Output = Result<Begin<Self::Transaction>, StoreError>> + Send;

    /// Writes the outcome in the transaction and commits it, fenced by the lease.
    ///
    /// Anything but [`Commit::Committed`] has rolled back. An `Err` says that no answer came: ask
    /// [`confirm`](Self::confirm), and never answer it as success.
    fn complete_in(
        &self,
        transaction: Self::Transaction,
        lease: &Lease,
        completion: &Completion,
    ) -> impl Future<Output = Result<Commit, StoreError>> + Send;

    /// Rolls back and waits until it has happened, or the connection is gone.
    fn rollback(&self, transaction: Self::Transaction) -> impl Future<Output = ()> + Send;

    /// Rolls back a transaction that did not come back: the one begun under `lease`, wherever it is now.
    fn abandon(&self, lease: &Lease) -> impl Future<Output = ()> + Send;

    /// Establishes what became of a commit whose reply was lost, after the transaction has been decided.
    ///
    /// [`Commit::Committed`] or [`Commit::Aborted`], or [`Commit::Fenced`] when somebody else holds the record.
    fn confirm(&self, lease: &Lease) -> impl Future<Output = Result<Commit, StoreError>> + Send;
}
