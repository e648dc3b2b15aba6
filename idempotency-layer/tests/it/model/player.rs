//! Plays a script on a store and on the model, and compares after every step.

use std::num::{NonZeroU16, NonZeroU32};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use idempotency_layer::Store;
use idempotency_layer::conformance::Harness;
use idempotency_layer::store::{
    self, CallerFingerprint, Claim, ClaimRequest, Completion, Fingerprint, HeldCause, LapsePolicy, Lease, LeaseId,
    Look, Page, RecordId, Renewal, Resolution, StoreError, StoredResponse, Tombstone, TombstoneReason, UnknownOutcome,
    Write,
};
use proptest::test_runner::TestCaseError;

use super::reference::{Answer, HeldRecord, Id, Model, Request};
use super::script::{CLAIMS, Decision, Script, Span, Step, Wish};

/// Plays the script, over two handles in turn.
pub(super) async fn play<H: Harness>(harness: &H, script: &Script) -> Result<(), TestCaseError> {
    let handles = [harness.open().await, harness.open().await];
    let cast = Cast::new(harness, script);
    let mut model = Model::new(cast.requests[0]);
    for (at, step) in script.steps.iter().enumerate() {
        let step = &step.aimed(model.latest_hold());
        let expected = cast.of_model(&mut model, *step);
        let Some(expected) = expected else { continue };
        let got = match *step {
            Step::Pass(span) => {
                harness.pass(cast.span(span)).await;
                Ok(Answer::Done)
            }
            step => cast.of_store(&handles[at % 2], step).await,
        };
        cast.compare(at, step, got, expected)?;
        let seen = handles[(at + 1) % 2].look(&cast.record).await;
        cast.compare(at, step, seen.map(|seen| cast.seen(seen)), model.look())?;
        let listed = cast.listed(&handles[at % 2]).await;
        cast.compare_listed(at, step, listed, model.listed())?;
    }
    Ok(())
}

/// The names that the model's small numbers have in the store.
struct Cast {
    record: RecordId,
    ids: Vec<LeaseId>,
    /// One for each way to decide each claim's hold.
    decisions: [[LeaseId; CLAIMS]; 3],
    requests: Vec<Request>,
    wishes: Vec<Wish>,
    lease: Duration,
    retention: Duration,
}

impl Cast {
    fn new<H: Harness>(harness: &H, script: &Script) -> Self {
        let (lease, retention) = (harness.lease(), harness.retention());
        let mut record = [0; 32];
        record[..16].copy_from_slice(LeaseId::random().as_bytes());
        let request = |(at, wish): (usize, &Wish)| Request {
            id: Id::Holder(at),
            fingerprint: wish.fingerprint,
            caller: wish.caller,
            lease: lease * if wish.long_lease { 2 } else { 1 },
            retention: retention * if wish.long_retention { 2 } else { 1 },
            hold: wish.hold,
            max_attempts: wish.max_attempts,
        };
        Self {
            record: RecordId::from_bytes(record),
            ids: script.claims.iter().map(|_| LeaseId::random()).collect(),
            decisions: std::array::from_fn(|_| std::array::from_fn(|_| LeaseId::random())),
            requests: script.claims.iter().enumerate().map(request).collect(),
            wishes: script.claims.clone(),
            lease,
            retention,
        }
    }

    /// What the model answers; none where the docs leave the answer open, and the step is left out.
    fn of_model(&self, model: &mut Model, step: Step) -> Option<Answer> {
        if let Step::Renew(at) | Step::Hold(at) = step
            && model.held_without_running(Id::Holder(at))
        {
            return None;
        }
        Some(match step {
            Step::Claim(at) => model.claim(self.requests[at]),
            Step::Renew(at) => model.renew(Id::Holder(at), self.requests[at].lease),
            Step::Complete(at) => model.complete(Id::Holder(at), self.wishes[at].buries),
            Step::Release(at) => model.release(Id::Holder(at)),
            Step::Forget(at) => model.forget(Id::Holder(at)),
            Step::Hold(at) => model.hold(Id::Holder(at)),
            Step::Decide(Decision::Settle, at) => model.settle(Id::Holder(at), Id::Decision(at)),
            Step::Decide(Decision::Free, at) => model.free(Id::Holder(at), Id::Decision(CLAIMS + at)),
            Step::Decide(Decision::Forget, at) => model.forget_held(Id::Holder(at)),
            Step::DecideLatest(_) => unreachable!("a decision is aimed before it is sent"),
            Step::Pass(span) => {
                model.pass(self.span(span));
                Answer::Done
            }
        })
    }

    async fn of_store<S: Store>(&self, store: &S, step: Step) -> Result<Answer, StoreError> {
        match step {
            Step::Claim(at) => store.claim(&self.claim(at)).await.map(|claim| self.claimed(claim)),
            Step::Renew(at) => Ok(match store.renew(&self.lease(at)).await? {
                Renewal::Renewed { .. } => Answer::Renewed,
                Renewal::Fenced => Answer::Fenced,
            }),
            Step::Complete(at) => store.complete(&self.lease(at), &self.completion(at)).await.map(written),
            Step::Release(at) => store.release(&self.lease(at)).await.map(written),
            Step::Forget(at) => store.forget(&self.lease(at)).await.map(written),
            Step::Hold(at) => store.hold(&self.lease(at)).await.map(written),
            Step::Decide(decision, at) => {
                let [settles, frees, forgets] = self.decisions.map(|ids| ids[at]);
                let (by, resolution) = match decision {
                    Decision::Settle => (settles, Resolution::Settle(answer_of(settles))),
                    Decision::Free => (frees, Resolution::Free),
                    Decision::Forget => (forgets, Resolution::Forget),
                };
                store.resolve(&self.hold(at), by, &resolution).await.map(written)
            }
            Step::DecideLatest(_) => unreachable!("a decision is aimed before it is sent"),
            Step::Pass(_) => unreachable!("the harness lets time pass"),
        }
    }

    fn claim(&self, at: usize) -> ClaimRequest {
        let Request { fingerprint, caller, retention, hold, max_attempts, .. } = self.requests[at];
        ClaimRequest {
            lease: self.lease(at),
            fingerprint: Fingerprint::from_bytes([fingerprint; 32]),
            caller: CallerFingerprint::from_bytes([caller; 32]),
            retention,
            policy: LapsePolicy {
                unknown: if hold { UnknownOutcome::Hold } else { UnknownOutcome::Rerun },
                max_attempts: NonZeroU32::new(max_attempts).unwrap(),
            },
        }
    }

    fn lease(&self, at: usize) -> Lease {
        Lease { record: self.record, id: self.ids[at], duration: self.requests[at].lease }
    }

    /// What an operator decides about; of what else was seen of the hold nothing depends.
    fn hold(&self, at: usize) -> store::HeldRecord {
        let (record, hold) = (self.record, self.ids[at]);
        store::HeldRecord { record, hold, attempt: 1, cause: HeldCause::Unknown, age: Duration::ZERO }
    }

    fn completion(&self, at: usize) -> Completion {
        if self.wishes[at].buries {
            // The status tells whose tombstone it is.
            let status = StatusCode::from_u16(200 + u16::try_from(at).unwrap()).unwrap();
            Completion::Tombstone(Tombstone { status, reason: TombstoneReason::TooLarge })
        } else {
            Completion::Response(answer_of(self.ids[at]))
        }
    }

    fn span(&self, span: Span) -> Duration {
        match span {
            Span::QuarterLease => self.lease / 4,
            Span::HalfLease => self.lease / 2,
            Span::LongerThanLease => self.lease * 5 / 4,
            Span::HalfRetention => self.retention / 2,
            Span::LongerThanRetention => self.retention * 5 / 4,
        }
    }

    fn claimed(&self, claim: Claim) -> Answer {
        match claim {
            Claim::Acquired(acquired) => Answer::Acquired { attempt: acquired.attempt },
            Claim::InFlight { age } => Answer::InFlight { age },
            Claim::Recorded(recorded) => Answer::Recorded { by: self.author(&recorded.response) },
            Claim::Unavailable(tombstone) => Answer::Unavailable { by: buried_by(tombstone) },
            Claim::Held => Answer::Held,
            Claim::Reused => Answer::Reused,
            Claim::CallerChanged => Answer::CallerChanged,
        }
    }

    fn seen(&self, look: Look) -> Answer {
        match look {
            Look::Absent => Answer::Absent,
            Look::Running { lease, age, lapsed } => Answer::Running { id: self.id(lease.as_bytes()), age, lapsed },
            Look::Recorded(response) => Answer::Recorded { by: self.author(&response) },
            Look::Unavailable(tombstone) => Answer::Unavailable { by: buried_by(tombstone) },
            Look::Free => Answer::Free,
            Look::Held(held) => Answer::HeldRecord(self.held(held)),
        }
    }

    fn author(&self, response: &StoredResponse) -> Id {
        self.id(&response.body)
    }

    fn id(&self, bytes: &[u8]) -> Id {
        let holder = self.ids.iter().position(|id| id.as_bytes() == bytes).map(Id::Holder);
        let settled = || self.decisions[0].iter().position(|id| id.as_bytes() == bytes).map(Id::Decision);
        holder.or_else(settled).unwrap_or(Id::Unknown)
    }

    fn held(&self, held: store::HeldRecord) -> HeldRecord {
        HeldRecord {
            hold: self.id(held.hold.as_bytes()),
            attempt: held.attempt,
            by_lapse: held.cause == HeldCause::Lapsed,
            age: held.age,
        }
    }

    /// The list is asked from just before the record on: its id ends in zeroes, and no other id begins like it.
    async fn listed<S: Store>(&self, store: &S) -> Result<Option<HeldRecord>, StoreError> {
        let mut before = *self.record.as_bytes();
        let last = before[..16].iter().rposition(|byte| *byte > 0).unwrap();
        before[last] -= 1;
        before[last + 1..].fill(0xff);
        let page = Page::first(NonZeroU16::MIN).after(RecordId::from_bytes(before));
        let first = store.held(&page).await?.records.first().copied();
        Ok(first.filter(|held| held.record == self.record).map(|held| self.held(held)))
    }

    fn compare(
        &self,
        at: usize,
        step: &Step,
        got: Result<Answer, StoreError>,
        expected: Answer,
    ) -> Result<(), TestCaseError> {
        let agrees = match (&got, expected) {
            (Ok(Answer::InFlight { age }), Answer::InFlight { age: expected }) => self.is_about(*age, expected),
            (
                Ok(Answer::Running { id, age, lapsed }),
                Answer::Running { id: whose, age: expected, lapsed: has_lapsed },
            ) => *id == whose && *lapsed == has_lapsed && self.is_about(*age, expected),
            (Ok(Answer::HeldRecord(got)), Answer::HeldRecord(expected)) => self.is_same_hold(got, expected),
            (Ok(got), expected) => *got == expected,
            (Err(_), _) => false,
        };
        if agrees {
            return Ok(());
        }
        Err(TestCaseError::fail(format!("step {at}, {step:?}: the store says {got:?}, the model {expected:?}")))
    }

    fn compare_listed(
        &self,
        at: usize,
        step: &Step,
        got: Result<Option<HeldRecord>, StoreError>,
        expected: Option<HeldRecord>,
    ) -> Result<(), TestCaseError> {
        let agrees = match (&got, expected) {
            (Ok(Some(got)), Some(expected)) => self.is_same_hold(got, expected),
            (Ok(None), None) => true,
            _ => false,
        };
        if agrees {
            return Ok(());
        }
        Err(TestCaseError::fail(format!("step {at}, {step:?}: the store lists {got:?}, the model {expected:?}")))
    }

    fn is_same_hold(&self, got: &HeldRecord, expected: HeldRecord) -> bool {
        self.is_about(got.age, expected.age) && HeldRecord { age: expected.age, ..*got } == expected
    }

    /// A store's own clock runs on between the steps, the model's does not.
    fn is_about(&self, age: Duration, expected: Duration) -> bool {
        (expected..expected + self.lease / 4).contains(&age)
    }
}

fn answer_of(id: LeaseId) -> Arc<StoredResponse> {
    Arc::new(StoredResponse::new(StatusCode::OK, Bytes::copy_from_slice(id.as_bytes())))
}

fn buried_by(tombstone: Tombstone) -> Id {
    Id::Holder(usize::from(tombstone.status.as_u16() - 200))
}

fn written(write: Write) -> Answer {
    match write {
        Write::Done => Answer::Done,
        Write::Fenced => Answer::Fenced,
    }
}
