//! Each verb: one statement, as a rule.
//!
//! 1. A claim of a new key, a replay, a refusal, a renewal, and the end of a run are one statement each.
//! 2. What takes another's place, a claim of what was freed, has lapsed or has expired, and an operator's decision, is
//!    decided by the state machine that all stores share, on the row that was read. The second statement writes it down if
//!    the row is as it was; otherwise the verb begins again. Deciding in SQL would have every replay pay for it.
//! 3. A statement that finds a row gone or changed that it has just seen is asked again, a few times.

use std::time::Duration;

use tokio::time::sleep;

use super::ask::Told;
use super::row::{self, Columns, Found};
use super::{PostgresStore, failure};
use crate::store::code;
use crate::store::machine::{self, Change, Liveness, Millis, Record, State};
use crate::store::{
    Acquired, Claim, ClaimRequest, Completion, HeldCause, HeldPage, HeldRecord, Lease, LeaseId, Look, Page, RecordId,
    Renewal, Resolution, Store, StoreError, StoreId, UnknownOutcome, Watch, Write,
};

impl Store for PostgresStore {
    fn identity(&self) -> StoreId {
        self.identity
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        let id = &request.lease.record;
        let mut in_flight = None;
        for _ in 0..LOOKS {
            let Told { answer, queued } = self.make(request).await?;
            let Some(row) = answer.rows.first() else { return Err(unheard_of()) };
            if row::is_made(row).map_err(StoreError::new)? {
                self.watchers().changed(id);
                return Ok(Claim::Acquired(Acquired { attempt: 1, queued }));
            }
            let Some(found) = row::found(row).map_err(StoreError::new)? else { continue };
            let now = row::now(row).map_err(StoreError::new)?;
            let visible = machine::visible(Some(&found.record), now, Liveness::ByClock);
            let (claim, change) = machine::claim(visible, request, now, Liveness::ByClock);
            let is_done = match (&claim, &change) {
                (_, Change::Keep) => return Ok(claim),
                // Sent again while it runs, if it still does: its lease starts anew.
                (Claim::Acquired(_), _) if found.is_running_under(request.lease.id) && found.is_visible(now) => {
                    self.prolong(&request.lease).await?.answer.affected > 0
                }
                _ => self.write(id, &found, &change).await?,
            };
            if is_done {
                return Ok(match claim {
                    Claim::Acquired(acquired) => Claim::Acquired(Acquired { queued, ..acquired }),
                    other => other,
                });
            }
            in_flight = (found.is_running() && found.is_visible(now))
                .then(|| Claim::InFlight { age: now.since(found.record.claimed_at) });
        }
        // A run that somebody is writing all the time is one.
        in_flight.ok_or_else(unsettled)
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal, StoreError> {
        for _ in 0..LOOKS {
            let told = self.prolong(lease).await?;
            if told.answer.affected > 0 {
                return Ok(Renewal::Renewed { queued: told.queued });
            }
            // It is over, or somebody is taking it over.
            match self.find(&lease.record).await? {
                Some((found, now)) if found.is_running_under(lease.id) && found.is_visible(now) => {}
                Some((found, now)) if found.record.lease == lease.id && found.is_visible(now) => {
                    return Ok(Renewal::Renewed { queued: told.queued });
                }
                _ => return Ok(Renewal::Fenced),
            }
        }
        Err(unsettled())
    }

    async fn complete(&self, lease: &Lease, completion: &Completion) -> Result<Write, StoreError> {
        let decide = |found: Option<&Record>, now| machine::complete(found, lease, completion, now);
        self.settle(lease, &Columns::of_completion(completion), decide).await
    }

    async fn release(&self, lease: &Lease) -> Result<Write, StoreError> {
        self.settle(lease, &Columns::of(&State::Free), |found, now| machine::release(found, lease, now)).await
    }

    async fn forget(&self, lease: &Lease) -> Result<Write, StoreError> {
        let forget = || {
            sqlx::query(self.statements.forget.clone())
                .bind(&lease.record.as_bytes()[..])
                .bind(&lease.id.as_bytes()[..])
        };
        for _ in 0..LOOKS {
            if self.ask(&self.shared.verbs, forget).await?.answer.affected > 0 {
                self.watchers().changed(&lease.record);
                return Ok(Write::Done);
            }
            let found = self.find(&lease.record).await?;
            if let (write, Change::Keep) = machine::forget(visible(&found), lease) {
                return Ok(write);
            }
        }
        Err(unsettled())
    }

    async fn hold(&self, lease: &Lease) -> Result<Write, StoreError> {
        let held = Columns::of(&State::Held(HeldCause::Unknown));
        self.settle(lease, &held, |found, now| machine::hold(found, lease, now)).await
    }

    async fn held(&self, page: &Page) -> Result<HeldPage, StoreError> {
        let (mut held, mut after) = (Vec::new(), page.start().map_or(Vec::new(), |id| id.as_bytes().to_vec()));
        // Runs that live take no place on the page, nor do rows that cannot be read, about which an operator can decide
        // nothing here. So a page may take several reads to fill.
        while held.len() <= usize::from(page.limit().get()) {
            let unexpiring = || sqlx::query(self.statements.unexpiring.clone()).bind(&after[..]).bind(BATCH);
            let rows = self.ask(&self.shared.verbs, unexpiring).await?.answer.rows;
            let Some(last) = rows.last() else { break };
            let last = row::raw_id(last).map_err(StoreError::new)?;
            held.extend(rows.iter().filter_map(|row| {
                let (id, found) = (row::id(row).ok()?, row::found(row).ok()??);
                machine::held(&id, &found.record, row::now(row).ok()?, Liveness::ByClock)
            }));
            after = last;
        }
        Ok(HeldPage::cut(held, page))
    }

    async fn resolve(&self, held: &HeldRecord, by: LeaseId, resolution: &Resolution) -> Result<Write, StoreError> {
        for _ in 0..LOOKS {
            let found = self.find(&held.record).await?;
            let now = found.as_ref().map_or(Millis(0), |(_, now)| *now);
            let decided = machine::resolve(visible(&found), held.hold, by, resolution, now, Liveness::ByClock);
            match (decided, &found) {
                ((write, Change::Keep), _) => return Ok(write),
                ((write, change), Some((found, _))) => {
                    if self.write(&held.record, found, &change).await? {
                        return Ok(write);
                    }
                }
                // There is nothing to change where there is nothing.
                ((write, _), None) => return Ok(write),
            }
        }
        Err(unsettled())
    }

    async fn look(&self, record: &RecordId) -> Result<Look, StoreError> {
        let found = self.find(record).await?;
        let now = found.as_ref().map_or(Millis(0), |(_, now)| *now);
        Ok(machine::look(record, visible(&found), now, Liveness::ByClock))
    }

    async fn watch(&self, record: &RecordId) -> Result<Watch, StoreError> {
        Ok(self.watchers().watch(record))
    }
}

impl PostgresStore {
    async fn make(&self, request: &ClaimRequest) -> Result<Told, StoreError> {
        let (retention, duration) = (row::millis(request.retention), row::millis(request.lease.duration));
        let kept = match request.policy.unknown {
            UnknownOutcome::Rerun => Some(retention.max(duration)),
            // To be held if its holder goes silent.
            UnknownOutcome::Hold => None,
        };
        self.ask(&self.shared.verbs, || {
            sqlx::query(self.statements.claim.clone())
                .bind(&request.lease.record.as_bytes()[..])
                .bind(&request.fingerprint.as_bytes()[..])
                .bind(&request.caller.as_bytes()[..])
                .bind(&request.lease.id.as_bytes()[..])
                .bind(row::small(code::of_unknown(request.policy.unknown)))
                .bind(i64::from(request.policy.max_attempts.get()))
                .bind(retention)
                .bind(duration)
                .bind(kept)
        })
        .await
    }

    /// Starts the lease of a run anew, if there is such a run.
    async fn prolong(&self, lease: &Lease) -> Result<Told, StoreError> {
        self.ask(&self.shared.renewals, || {
            sqlx::query(self.statements.renew.clone())
                .bind(&lease.record.as_bytes()[..])
                .bind(&lease.id.as_bytes()[..])
                .bind(row::millis(lease.duration))
        })
        .await
    }

    /// Ends the run of a lease as these columns say. What that is worth when there is no such run, `decide` says.
    async fn settle(
        &self,
        lease: &Lease,
        end: &Columns,
        decide: impl Fn(Option<&Record>, Millis) -> (Write, Change),
    ) -> Result<Write, StoreError> {
        let settle = || {
            let statement = sqlx::query(self.statements.settle.clone())
                .bind(&lease.record.as_bytes()[..])
                .bind(&lease.id.as_bytes()[..])
                .bind(end.state)
                .bind(end.cause);
            end.bind_answer(statement)
        };
        for _ in 0..LOOKS {
            if self.ask(&self.shared.verbs, settle).await?.answer.affected > 0 {
                self.watchers().changed(&lease.record);
                return Ok(Write::Done);
            }
            let found = self.find(&lease.record).await?;
            let now = found.as_ref().map_or(Millis(0), |(_, now)| *now);
            if let (write, Change::Keep) = decide(visible(&found), now) {
                return Ok(write);
            }
        }
        Err(unsettled())
    }

    /// Reads a record, and the time at which it was read.
    pub(super) async fn find(&self, id: &RecordId) -> Result<Option<(Found, Millis)>, StoreError> {
        let look = || sqlx::query(self.statements.look.clone()).bind(&id.as_bytes()[..]);
        let rows = self.ask(&self.shared.verbs, look).await?.answer.rows;
        let Some(row) = rows.first() else { return Ok(None) };
        let found = row::found(row).map_err(StoreError::new)?;
        let now = row::now(row).map_err(StoreError::new)?;
        Ok(found.map(|found| (found, now)))
    }

    /// Writes a change of what was found, and says whether that was still there.
    async fn write(&self, id: &RecordId, found: &Found, change: &Change) -> Result<bool, StoreError> {
        let told = match change {
            Change::Keep => return Ok(true),
            Change::Put(record) => {
                let columns = Columns::of(&record.state);
                let replace = || {
                    let statement = sqlx::query(self.statements.replace.clone()).bind(&id.as_bytes()[..]);
                    row::bind(found.seen.bind(statement), record, &columns)
                };
                self.ask(&self.shared.verbs, replace).await?
            }
            Change::Remove => {
                let remove = || {
                    let statement = sqlx::query(self.statements.remove.clone()).bind(&id.as_bytes()[..]);
                    found.seen.bind(statement)
                };
                self.ask(&self.shared.verbs, remove).await?
            }
        };
        if told.answer.affected > 0 {
            self.watchers().changed(id);
            return Ok(true);
        }
        // Whoever is writing it has it for a moment.
        sleep(PAUSE).await;
        Ok(false)
    }
}

impl Found {
    fn is_running(&self) -> bool {
        matches!(self.record.state, State::Running)
    }

    pub(super) fn is_running_under(&self, id: LeaseId) -> bool {
        self.is_running() && self.record.lease == id
    }

    pub(super) fn is_visible(&self, now: Millis) -> bool {
        machine::visible(Some(&self.record), now, Liveness::ByClock).is_some()
    }
}

fn visible(found: &Option<(Found, Millis)>) -> Option<&Record> {
    let (found, now) = found.as_ref()?;
    machine::visible(Some(&found.record), *now, Liveness::ByClock)
}

fn unheard_of() -> StoreError {
    failure::unavailable("a statement answered what none of this version answers")
}

fn unsettled() -> StoreError {
    failure::unavailable("the record changed as often as it was read")
}

/// How often a verb reads a record that is not as it was.
const LOOKS: u32 = 8;

/// Between two of them.
const PAUSE: Duration = Duration::from_millis(2);

const BATCH: i64 = 100;
