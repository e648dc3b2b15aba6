//! The verbs: what the server is told for each, and what its answer means.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use redis::{Cmd, RedisError, Value};

use super::failure::{of_verb, unavailable};
use super::plain::{self, Met};
use super::record::{self, Outcome};
use super::script::{self, CLAIM, Call, FORGET, LOOK, RENEW, RESOLVE, SETTLE};
use super::{RedisStore, held};
use crate::store::code::{self, FREE, HELD};
use crate::store::headers::Damaged;
use crate::store::machine::whole_millis;
use crate::store::{
    Acquired, Claim, ClaimRequest, Completion, HeldCause, HeldPage, HeldRecord, Lease, LeaseId, Look, Page, RecordId,
    Recorded, Renewal, Resolution, Store, StoreError, StoreErrorKind, StoreId, StoredResponse, Tombstone,
    UnknownOutcome, Watch, Write,
};

impl Store for RedisStore {
    fn identity(&self) -> StoreId {
        self.identity
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        let (duration, retention) = (millis(request.lease.duration), millis(request.retention));
        let kept = match request.policy.unknown {
            UnknownOutcome::Rerun => retention.max(duration).max(1),
            // To be held if its holder goes silent, so without an expiry.
            UnknownOutcome::Hold => 0,
        };
        let key = self.key(&request.lease.record);
        let head = record::first(request, retention, duration);
        if kept > 0 && self.takes_plain_claims() {
            let sent = self.shared.server.send(&key, &plain::commands(&key, &head, kept)).await;
            if let Some(claim) = self.understand(request, sent)? {
                return Ok(claim);
            }
        }
        let call = CLAIM.on(&key).with(head).with(duration).with(kept);
        let (mut answer, is_kept) = self.write(&call).await?;
        let claim = match answer.code()? {
            attempt @ 1.. if answer.is_code() => {
                let attempt = u32::try_from(attempt).map_err(|_| unheard_of())?;
                Claim::Acquired(Acquired { attempt, queued: Duration::ZERO })
            }
            2 => return Ok(Claim::InFlight { age: answer.duration(1)? }),
            3 => {
                let expires_in = answer.duration(1)?;
                return Ok(Claim::Recorded(Recorded { response: answer.response(2)?, expires_in }));
            }
            4 => return answer.tombstone().map(Claim::Unavailable),
            OTHER_REQUEST => return Ok(Claim::Reused),
            OTHER_CALLER => return Ok(Claim::CallerChanged),
            IS_HELD => Claim::Held,
            _ => return Err(unheard_of()),
        };
        self.watchers().changed(&request.lease.record);
        if is_kept { Ok(claim) } else { Err(unconfirmed()) }
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal, StoreError> {
        let call = RENEW.on(&self.key(&lease.record)).with(&lease.id.as_bytes()[..]).with(millis(lease.duration));
        match self.run(&call).await?.code()? {
            1 => Ok(Renewal::Renewed { queued: Duration::ZERO }),
            0 => Ok(Renewal::Fenced),
            _ => Err(unheard_of()),
        }
    }

    async fn complete(&self, lease: &Lease, completion: &Completion) -> Result<Write, StoreError> {
        self.settle(lease, Outcome::of(completion)).await
    }

    async fn release(&self, lease: &Lease) -> Result<Write, StoreError> {
        self.settle(lease, Outcome::without_answer(FREE, 0)).await
    }

    async fn forget(&self, lease: &Lease) -> Result<Write, StoreError> {
        let call = FORGET.on(&self.key(&lease.record)).with(&lease.id.as_bytes()[..]);
        self.decide(&lease.record, &call).await
    }

    async fn hold(&self, lease: &Lease) -> Result<Write, StoreError> {
        self.settle(lease, Outcome::without_answer(HELD, code::of_cause(HeldCause::Unknown))).await
    }

    async fn held(&self, page: &Page) -> Result<HeldPage, StoreError> {
        held::list(self, page).await
    }

    async fn resolve(&self, held: &HeldRecord, by: LeaseId, resolution: &Resolution) -> Result<Write, StoreError> {
        let outcome = match resolution {
            Resolution::Settle(response) => Outcome::of_response(response),
            Resolution::Free => Outcome::without_answer(FREE, 0),
            Resolution::Forget => Outcome::without_answer(ABSENT, 0),
        };
        let call = RESOLVE.on(&self.key(&held.record)).with(&held.hold.as_bytes()[..]).with(&by.as_bytes()[..]);
        let call = call.with(&outcome.begin[..]).with(outcome.end);
        self.decide(&held.record, &call).await
    }

    async fn look(&self, record: &RecordId) -> Result<Look, StoreError> {
        let mut answer = self.run(&LOOK.on(&self.key(record))).await?;
        Ok(match answer.code()? {
            0 => Look::Absent,
            1 => Look::Running { lease: answer.lease(1)?, age: answer.duration(2)?, lapsed: answer.int(3)? != 0 },
            2 => Look::Recorded(answer.response(1)?),
            3 => Look::Unavailable(answer.tombstone()?),
            4 => Look::Free,
            5 => Look::Held(HeldRecord {
                record: *record,
                hold: answer.lease(1)?,
                attempt: answer.number(2)?,
                cause: code::cause(answer.int(3)?).ok_or_else(unheard_of)?,
                age: answer.duration(4)?,
            }),
            _ => return Err(unheard_of()),
        })
    }

    async fn watch(&self, record: &RecordId) -> Result<Watch, StoreError> {
        Ok(self.watchers().watch(record))
    }
}

impl RedisStore {
    /// What a plain claim answers; nothing, if the script has to.
    fn understand(&self, request: &ClaimRequest, sent: Result<Value, RedisError>) -> Result<Option<Claim>, StoreError> {
        let answer = match sent {
            Ok(answer) => answer,
            // The server refuses it: it is too old, has no memory left for a write, or takes none. A script that only reads it
            // may run all the same. If it is the second half that was refused, the script finds the claim's own run.
            Err(error) if error.code().is_some() => {
                self.refused_plain_claim(&error);
                return Ok(None);
            }
            Err(error) => return Err(of_verb(error)),
        };
        let (value, left) = plain::answers(answer).ok_or_else(unheard_of)?;
        Ok(Some(match plain::met(request, value.as_deref(), left) {
            Met::Nothing => {
                self.watchers().changed(&request.lease.record);
                Claim::Acquired(Acquired { attempt: 1, queued: Duration::ZERO })
            }
            Met::OtherRequest => Claim::Reused,
            Met::OtherCaller => Claim::CallerChanged,
            Met::Recorded { expires_in } => {
                let response = response(value.unwrap_or_default())?;
                Claim::Recorded(Recorded { response, expires_in })
            }
            Met::Unavailable(tombstone) => Claim::Unavailable(tombstone),
            Met::Running { age } => Claim::InFlight { age },
            Met::Unclear => return Ok(None),
        }))
    }

    async fn settle(&self, lease: &Lease, outcome: Outcome) -> Result<Write, StoreError> {
        let call = SETTLE.on(&self.key(&lease.record)).with(&lease.id.as_bytes()[..]);
        let call = call.with(&outcome.begin[..]).with(outcome.end);
        self.decide(&lease.record, &call).await
    }

    /// Runs a verb that answers whether its write counts.
    async fn decide(&self, record: &RecordId, call: &Call) -> Result<Write, StoreError> {
        let (answer, is_kept) = self.write(call).await?;
        match answer.code()? {
            1 => {
                self.watchers().changed(record);
                if is_kept { Ok(Write::Done) } else { Err(unconfirmed()) }
            }
            0 => Ok(Write::Fenced),
            _ => Err(unheard_of()),
        }
    }

    /// Runs a verb that may write, and says whether as many replicas have it as must.
    async fn write(&self, call: &Call) -> Result<(Answer, bool), StoreError> {
        let Some(replicas) = &self.replicas else { return Ok((self.run(call).await?, true)) };
        let sent = match replicas.send(call.by_hash()).await {
            Err(error) if script::is_unknown(&error) => replicas.send(&call.whole()).await,
            sent => sent,
        };
        let (answer, is_kept) = sent.map_err(of_verb)?;
        Ok((Answer::of(answer)?, is_kept))
    }

    async fn run(&self, call: &Call) -> Result<Answer, StoreError> {
        let sent = match self.send(call.key(), call.by_hash()).await {
            Err(error) if script::is_unknown(&error) => self.send(call.key(), &call.whole()).await,
            sent => sent,
        };
        Answer::of(sent.map_err(of_verb)?)
    }

    async fn send(&self, key: &[u8], command: &Cmd) -> Result<Value, RedisError> {
        self.shared.server.send(key, command).await
    }

    /// Puts a record there that cannot be read, for the conformance list.
    #[cfg(feature = "conformance")]
    pub(crate) async fn damage(&self, id: &RecordId, kind: StoreErrorKind) -> Result<(), StoreError> {
        let value = if kind == StoreErrorKind::Newer { record::damaged(2, 1) } else { record::damaged(1, 0) };
        let mut set = redis::cmd("SET");
        let key = self.key(id);
        set.arg(&key[..]).arg(value);
        self.send(&key, &set).await.map(drop).map_err(of_verb)
    }
}

/// What a script answered: a code alone, or first and then what goes with it.
#[derive(Debug)]
enum Answer {
    Code(i64),
    Parts(Vec<Value>),
}

impl Answer {
    fn of(value: Value) -> Result<Self, StoreError> {
        match value {
            Value::Int(code) => Ok(Self::Code(code)),
            Value::Array(parts) => Ok(Self::Parts(parts)),
            _ => Err(unheard_of()),
        }
    }

    /// Whether nothing goes with the code.
    fn is_code(&self) -> bool {
        matches!(self, Self::Code(_))
    }

    /// The code, if the record could be read.
    fn code(&self) -> Result<i64, StoreError> {
        let code = match self {
            Self::Code(code) => *code,
            Self::Parts(_) => self.int(0)?,
        };
        match code {
            CORRUPT => Err(StoreError::new(StoreErrorKind::Corrupt)),
            NEWER => Err(StoreError::new(StoreErrorKind::Newer)),
            code => Ok(code),
        }
    }

    fn part(&self, at: usize) -> Option<&Value> {
        match self {
            Self::Code(_) => None,
            Self::Parts(parts) => parts.get(at),
        }
    }

    fn int(&self, at: usize) -> Result<i64, StoreError> {
        match self.part(at) {
            Some(Value::Int(number)) => Ok(*number),
            _ => Err(unheard_of()),
        }
    }

    fn number<T: TryFrom<i64>>(&self, at: usize) -> Result<T, StoreError> {
        T::try_from(self.int(at)?).map_err(|_| unheard_of())
    }

    fn duration(&self, at: usize) -> Result<Duration, StoreError> {
        // A clock that was set back makes nothing older than it is.
        Ok(Duration::from_millis(u64::try_from(self.int(at)?).unwrap_or(0)))
    }

    fn lease(&self, at: usize) -> Result<LeaseId, StoreError> {
        match self.part(at) {
            Some(Value::BulkString(bytes)) => bytes[..].try_into().map(LeaseId::from_bytes).map_err(|_| unheard_of()),
            _ => Err(unheard_of()),
        }
    }

    fn response(&mut self, at: usize) -> Result<Arc<StoredResponse>, StoreError> {
        let part = match self {
            Self::Code(_) => None,
            Self::Parts(parts) => parts.get_mut(at),
        };
        match part {
            Some(Value::BulkString(value)) => response(std::mem::take(value)),
            _ => Err(unheard_of()),
        }
    }

    /// The status and the reason, which stand behind the code.
    fn tombstone(&self) -> Result<Tombstone, StoreError> {
        let corrupt = || StoreError::new(StoreErrorKind::Corrupt);
        Ok(Tombstone {
            status: StatusCode::from_u16(self.number(1)?).map_err(|_| corrupt())?,
            reason: code::reason(self.int(2)?).ok_or_else(corrupt)?,
        })
    }
}

fn response(value: Vec<u8>) -> Result<Arc<StoredResponse>, StoreError> {
    match record::response(value) {
        Ok(response) => Ok(Arc::new(response)),
        Err(Damaged) => Err(StoreError::new(StoreErrorKind::Corrupt)),
    }
}

/// Whole milliseconds, as many as a script counts exactly with a moment added.
fn millis(duration: Duration) -> i64 {
    whole_millis(duration).clamp(0, MOST_MILLIS)
}

fn unheard_of() -> StoreError {
    unavailable("a script answered what none of this version answers")
}

fn unconfirmed() -> StoreError {
    unavailable("the write is done, but fewer replicas than `wait_replicas` asks for have it")
}

/// For a decision that leaves no record.
const ABSENT: i64 = 0;

const CORRUPT: i64 = -1;
const NEWER: i64 = -2;

/// Answers to a claim.
const OTHER_REQUEST: i64 = -3;
const OTHER_CALLER: i64 = -4;
const IS_HELD: i64 = -5;

/// 2^52, about 143,000 years.
const MOST_MILLIS: i64 = 1 << 52;
