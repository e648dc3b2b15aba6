//! The rules of a record, each written so that one mutation can break it.
//!
//! Every function works on the place of one record: none there is `None`.

use std::sync::Arc;
use std::time::Duration;

use idempotency_layer::store::{
    Acquired, CallerFingerprint, Claim, ClaimRequest, Completion, Fingerprint, HeldCause, HeldRecord, LapsePolicy,
    Lease, LeaseId, Look, RecordId, Recorded, Renewal, Resolution, StoredResponse, Tombstone, UnknownOutcome, Write,
};

use super::Mutation::{self, *};
use super::reply;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub(super) state: State,
    fingerprint: Fingerprint,
    caller: CallerFingerprint,
    pub(super) lease: LeaseId,
    pub(super) attempt: u32,
    lapses: u32,
    policy: LapsePolicy,
    pub(super) retention: Duration,
    first_claimed_at: Duration,
    claimed_at: Duration,
    lease_until: Duration,
    pub(super) written_at: Duration,
    /// Every id that held the key once, for the mutants that still listen to them.
    past: Vec<LeaseId>,
    decided_by: Option<LeaseId>,
    renewed: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum State {
    Running,
    Recorded(Arc<StoredResponse>),
    Buried(Tombstone),
    Free,
    Held(HeldCause),
}

/// The moment of a verb, and what is wrong with the store that carries it out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) now: Duration,
    pub(super) mutation: Option<Mutation>,
}

type Place = Option<Row>;

impl Row {
    pub(super) fn is_under_hold(&self) -> bool {
        self.policy.unknown == UnknownOutcome::Hold
    }
}

impl Rules {
    pub(super) fn has(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    pub(super) fn is_expired(&self, row: &Row, last_retention: Duration) -> bool {
        let retention = if self.has(OneRetentionForAll) { last_retention } else { row.retention };
        let since = if self.has(RetentionCountsFromTheClaim) { row.claimed_at } else { row.written_at };
        let until = match row.state {
            State::Held(_) if !self.has(HeldExpires) => return false,
            State::Running if self.has(RunsNeverExpire) => return false,
            State::Running if row.is_under_hold() && !self.has(RunsUnderHoldExpire) => return false,
            State::Running if self.has(LiveRunsExpire) => row.claimed_at + retention,
            State::Running if self.has(RecordsEndWithTheirLease) => row.lease_until,
            State::Running => (since + retention).max(row.lease_until),
            _ if self.has(SettledNeverExpires) => return false,
            _ => since + retention,
        };
        until <= self.now
    }

    pub(super) fn is_lapsed(&self, row: &Row) -> bool {
        let until = if self.has(LeasesAreHalved) {
            row.lease_until - (row.lease_until.saturating_sub(row.written_at)) / 2
        } else {
            row.lease_until
        };
        !(self.has(RenewedLeasesNeverLapse) && row.renewed) && until <= self.now
    }

    /// Why and since when it is held in the eyes of everyone but its holder.
    fn its_hold(&self, row: &Row) -> Option<(HeldCause, Duration)> {
        let lapses_into_hold = row.is_under_hold() || self.has(LapsesUnderRerunAreHeld);
        match row.state {
            State::Held(cause) => Some((cause, row.written_at)),
            State::Running if lapses_into_hold && (self.is_lapsed(row) || self.has(RunsUnderHoldAreHeld)) => {
                Some((HeldCause::Lapsed, row.lease_until))
            }
            _ => None,
        }
    }

    /// As [`its_hold`](Self::its_hold), unless it is a run and the mutation says so.
    fn its_hold_unless(&self, row: &Row, mutation: Mutation) -> Option<(HeldCause, Duration)> {
        self.its_hold(row).filter(|_| row.state != State::Running || !self.has(mutation))
    }

    fn age(&self, row: &Row) -> Duration {
        let since = match self.mutation {
            Some(AgeIsZero) => self.now,
            Some(AgeCountsFromTheFirstClaim) => row.first_claimed_at,
            Some(AgeCountsFromTheLastWrite) => row.written_at,
            _ => row.claimed_at,
        };
        self.now - since
    }

    pub(super) fn claim(&self, place: &mut Place, request: &ClaimRequest) -> Claim {
        let Some(row) = place else { return self.run(place, request) };
        if let Some(refused) = self.mismatch(row, request) {
            return refused;
        }
        let own = row.lease == request.lease.id;
        match &row.state {
            State::Recorded(response) => {
                let age =
                    if self.has(ReplaysTellTheWholeRetention) { Duration::ZERO } else { self.now - row.written_at };
                let expires_in = row.retention.saturating_sub(age);
                Claim::Recorded(Recorded { response: Arc::clone(response), expires_in })
            }
            State::Buried(tombstone) => Claim::Unavailable(*tombstone),
            State::Held(_) if self.has(HeldIsFree) || own && self.has(HeldLetsItsWriterClaim) => {
                self.run(place, request)
            }
            State::Held(_) => Claim::Held,
            State::Free if row.policy.unknown == UnknownOutcome::Hold && self.has(HoldHoldsWhatIsFree) => Claim::Held,
            State::Free if own && !self.has(FreeLetsItsWriterClaim) => Claim::InFlight { age: self.age(row) },
            State::Free => self.run(place, request),
            State::Running if own => self.claim_again(row, request),
            State::Running if self.has(PastHoldersClaim) && row.past.contains(&request.lease.id) => {
                self.run(place, request)
            }
            State::Running if self.is_lapsed(row) => self.take_over(place, request),
            State::Running => Claim::InFlight { age: self.age(row) },
        }
    }

    fn mismatch(&self, row: &Row, request: &ClaimRequest) -> Option<Claim> {
        let lapsed = row.state == State::Running && self.is_lapsed(row);
        if self.has(NewRunsAreNotCompared) && row.state == State::Running && row.claimed_at == self.now {
            return None;
        }
        let forgets_request = self.has(FreeForgetsTheRequest) && row.state == State::Free
            || self.has(TakeoverIgnoresTheRequest) && lapsed;
        let forgets_caller = self.has(CallerIsNotCompared) || self.has(TakeoverIgnoresTheCaller) && lapsed;
        let reused = (row.fingerprint != request.fingerprint && !forgets_request).then_some(Claim::Reused);
        let changed = (row.caller != request.caller && !forgets_caller).then_some(Claim::CallerChanged);
        if self.has(CallerIsComparedFirst) { changed.or(reused) } else { reused.or(changed) }
    }

    fn claim_again(&self, row: &mut Row, request: &ClaimRequest) -> Claim {
        if self.has(OwnClaimIsInFlight) {
            return Claim::InFlight { age: self.age(row) };
        }
        if self.has(OwnClaimIsTheNextAttempt) {
            row.attempt += 1;
        }
        if !self.has(OwnClaimKeepsTheLease) {
            row.lease_until = self.now + request.lease.duration;
            row.written_at = self.now;
        }
        Claim::Acquired(Acquired { attempt: row.attempt, queued: Duration::ZERO })
    }

    fn take_over(&self, place: &mut Place, request: &ClaimRequest) -> Claim {
        let Some(row) = place else { unreachable!("a lapsed run is there") };
        row.lapses += 1;
        let policy = if self.has(PolicyIsTheNextClaims) { request.policy } else { row.policy };
        let used_up = row.lapses >= policy.max_attempts.get() && !self.has(LapsesAreUnlimited);
        if policy.unknown == UnknownOutcome::Hold || used_up {
            row.state = State::Held(if self.has(HeldHasOneCause) { HeldCause::Unknown } else { HeldCause::Lapsed });
            row.lease = request.lease.id;
            row.written_at = self.now;
            return Claim::Held;
        }
        if self.has(TakeoverKeepsTheAttempt) {
            row.attempt -= 1;
        }
        self.run(place, request)
    }

    fn run(&self, place: &mut Place, request: &ClaimRequest) -> Claim {
        let before = place.as_ref();
        let anew = self.has(FreeStartsAttemptsAnew) && before.is_some_and(|row| row.state == State::Free);
        let attempt = if anew { 1 } else { before.map_or(0, |row| row.attempt) + 1 };
        let mut past = before.map_or(Vec::new(), |row| row.past.clone());
        past.push(request.lease.id);
        *place = Some(Row {
            state: State::Running,
            fingerprint: request.fingerprint,
            caller: request.caller,
            lease: request.lease.id,
            attempt,
            lapses: before.map_or(0, |row| row.lapses),
            policy: request.policy,
            retention: request.retention,
            first_claimed_at: before.map_or(self.now, |row| row.first_claimed_at),
            claimed_at: self.now,
            lease_until: self.now + request.lease.duration,
            written_at: self.now,
            past,
            decided_by: before.and_then(|row| row.decided_by),
            renewed: false,
        });
        Claim::Acquired(Acquired { attempt, queued: Duration::ZERO })
    }

    fn holds(&self, row: &Row, id: LeaseId, unfenced: Mutation) -> bool {
        let by_time = self.has(EndIsFencedByTime) && self.is_lapsed(row)
            || self.has(LapsesUnderHoldAreNotEnded) && self.its_hold(row).is_some();
        let runs = row.state == State::Running
            && !by_time
            && (row.lease == id || self.has(unfenced) || self.has(PastHoldersWrite) && row.past.contains(&id));
        runs || row.lease == id && self.has(FencesLookAtTheIdAlone)
    }

    pub(super) fn renew(&self, place: &mut Place, lease: &Lease) -> Renewal {
        let renewed = Renewal::Renewed { queued: Duration::ZERO };
        match place {
            Some(row) if row.state == State::Running && (row.lease == lease.id || self.has(RenewalIsNotFenced)) => {
                let by_time = self.has(RenewalIsFencedByTime) && self.is_lapsed(row)
                    || self.has(LapsesUnderHoldAreNotRenewed) && self.its_hold(row).is_some();
                if by_time || self.has(RenewsOnce) && row.renewed {
                    return Renewal::Fenced;
                }
                row.renewed = true;
                if !self.has(RenewalKeepsTheLease) {
                    row.lease_until = self.now + lease.duration;
                }
                if !self.has(RenewalKeepsTheRetention) {
                    row.written_at = self.now;
                }
                renewed
            }
            Some(row) if row.lease == lease.id && !self.has(RenewalIsForRunsOnly) => {
                if self.has(CrossingRenewalIsAWrite) {
                    row.written_at = self.now;
                }
                renewed
            }
            _ => Renewal::Fenced,
        }
    }

    pub(super) fn complete(&self, place: &mut Place, lease: &Lease, completion: &Completion) -> Write {
        let (state, unfenced) = match completion {
            Completion::Response(response) => {
                (State::Recorded(reply::kept(response, self.mutation)), CompletionIsNotFenced)
            }
            Completion::Tombstone(tombstone) => {
                (State::Buried(reply::buried(*tombstone, self.mutation)), TombstoneIsNotFenced)
            }
        };
        match place {
            Some(row) if self.holds(row, lease.id, unfenced) => {
                self.settle(row, state, lease.id, RecordedForgetsItsWriter);
                Write::Done
            }
            Some(row) if row.lease == lease.id && matches!(row.state, State::Recorded(_) | State::Buried(_)) => {
                if self.has(TheLatestResponseWins) {
                    row.state = state;
                }
                Write::Done
            }
            _ => Write::Fenced,
        }
    }

    pub(super) fn release(&self, place: &mut Place, lease: &Lease) -> Write {
        match place {
            Some(row) if self.holds(row, lease.id, ReleaseIsNotFenced) => {
                self.settle(row, State::Free, lease.id, FreeForgetsItsWriter);
                if self.has(ReleasesCountAsLapses) {
                    row.lapses += 1;
                }
                if self.has(ReleaseForgetsLapses) {
                    row.lapses = 0;
                }
                Write::Done
            }
            Some(row) if row.lease == lease.id && row.state == State::Free => Write::Done,
            _ => Write::Fenced,
        }
    }

    pub(super) fn forget(&self, place: &mut Place, lease: &Lease) -> Write {
        match place {
            None if self.has(ForgetNeedsARecord) => Write::Fenced,
            None => Write::Done,
            Some(row) if self.holds(row, lease.id, ForgetIsNotFenced) => {
                if self.has(ForgetFrees) {
                    self.settle(row, State::Free, lease.id, FreeForgetsItsWriter);
                } else {
                    *place = None;
                }
                Write::Done
            }
            Some(_) => Write::Fenced,
        }
    }

    pub(super) fn hold(&self, place: &mut Place, lease: &Lease) -> Write {
        match place {
            Some(row) if self.holds(row, lease.id, HoldIsNotFenced) => {
                self.settle(row, State::Held(HeldCause::Unknown), lease.id, HeldForgetsItsWriter);
                Write::Done
            }
            Some(row) if row.lease == lease.id && matches!(row.state, State::Held(_)) => Write::Done,
            _ => Write::Fenced,
        }
    }

    fn settle(&self, row: &mut Row, state: State, by: LeaseId, forgets: Mutation) {
        row.state = state;
        row.lease = if self.has(forgets) { LeaseId::random() } else { by };
        row.written_at = self.now;
    }

    pub(super) fn resolve(&self, place: &mut Place, hold: LeaseId, by: LeaseId, resolution: &Resolution) -> Write {
        let Some(row) = place else {
            return if matches!(resolution, Resolution::Forget) { Write::Done } else { Write::Fenced };
        };
        let this_hold = row.lease == hold || self.has(DecisionsCountForAnyHold);
        let decidable = self.its_hold_unless(row, LapsesUnderHoldAreNotDecided).is_some() && this_hold
            || self.has(DecisionsNeedNoHold)
            || self.has(DecisionsApplyAgain) && row.decided_by == Some(by)
            || self.has(SecondDecisionsReplace) && row.decided_by.is_some();
        if !decidable {
            let already = match resolution {
                Resolution::Settle(_) => matches!(row.state, State::Recorded(_)),
                Resolution::Free => row.state == State::Free,
                Resolution::Forget => false,
            };
            return if already && row.lease == by { Write::Done } else { Write::Fenced };
        }
        let held_since = row.written_at;
        match resolution {
            Resolution::Settle(response) => {
                let mut response = StoredResponse::clone(response);
                if self.has(SettleDropsTheBody) {
                    response.body.clear();
                }
                self.settle(row, State::Recorded(Arc::new(response)), by, DecisionsForgetTheirWriter);
            }
            Resolution::Forget if !self.has(OperatorsForgetFrees) => *place = None,
            Resolution::Free if self.has(OperatorsFreeForgets) => *place = None,
            Resolution::Free | Resolution::Forget => {
                self.settle(row, State::Free, by, DecisionsForgetTheirWriter);
                if !self.has(OperatorsFreeKeepsLapses) {
                    row.lapses = 0;
                }
            }
        }
        if let Some(row) = place {
            row.decided_by = Some(by);
            if self.has(RetentionCountsFromTheHold) {
                row.written_at = held_since;
            }
        }
        Write::Done
    }

    pub(super) fn held(&self, id: RecordId, row: &Row) -> Option<HeldRecord> {
        let (cause, since) = self.its_hold_unless(row, LapsesUnderHoldAreNotListed)?;
        Some(self.told(id, row, cause, since))
    }

    fn told(&self, id: RecordId, row: &Row, cause: HeldCause, since: Duration) -> HeldRecord {
        HeldRecord { record: id, hold: row.lease, attempt: row.attempt, cause, age: self.now.saturating_sub(since) }
    }

    pub(super) fn look(&self, id: RecordId, place: &Place) -> Look {
        let Some(row) = place else { return Look::Absent };
        if let Some((cause, since)) = self.its_hold_unless(row, LapsesUnderHoldLookRunning) {
            let cause = if self.has(LooksTellOneCause) { HeldCause::Unknown } else { cause };
            return Look::Held(self.told(id, row, cause, since));
        }
        match &row.state {
            State::Running => Look::Running {
                lease: row.lease,
                age: self.age(row),
                lapsed: self.is_lapsed(row) && !self.has(RunsLookLive),
            },
            State::Recorded(response) => Look::Recorded(Arc::clone(response)),
            State::Buried(tombstone) => Look::Unavailable(*tombstone),
            State::Free if self.has(FreeLooksAbsent) => Look::Absent,
            State::Free => Look::Free,
            State::Held(_) => unreachable!("a hold was told above"),
        }
    }
}
