//! A claim that is one plain command, and what it has met.
//!
//! `SET key head NX GET PX kept` makes the record of a first run where there is none, and gives the one that is there
//! otherwise. `PTTL`, sent with it, says how long that one is still kept, and so how old it is. Scripts cost a server several
//! times as much, and most claims need none:
//!
//! 1. Nothing was there: the claim has made its record.
//! 2. A record of another request or another caller, an end, or somebody's run whose lease is live: that is the answer.
//! 3. Anything else is for the script to answer, which decides and writes in one step: the claim's own run, sent again; a
//!    lease that has lapsed; what is free, held, or not to expire; and what cannot be read.
//!
//! The two commands are not one step, and others may write in between. No wrong answer comes of it, for nothing is written
//! after `SET`, and what it gave was true then; only times may be those of a later record:
//!
//! - The end of a run, a renewal, or another's claim makes the record younger. Then a run that was over, or lapsed, may be
//!   told as in flight, as it would have been a moment before or after, and with less than its age.
//! - A record that has gone, or has become one that does not expire, is for the script.
//! - A key that a cluster moves keeps what is left of its time, without what the move takes: its record is so much younger.
//! - A node that gives a key away in between has the second command fail. Both are sent again to the other, where the claim
//!   finds its own run, which is for the script.

use std::time::Duration;

use http::StatusCode;
use redis::{Cmd, Pipeline, Value};

use super::record::{Head, UNTIMED};
use crate::store::code::{self, RECORDED, RUNNING, TOMBSTONE};
use crate::store::{ClaimRequest, Tombstone, UnknownOutcome};

/// The commands, in one write.
pub(super) fn commands(key: &[u8], head: &[u8], kept: i64) -> Pipeline {
    let mut set = Cmd::with_capacity(7, key.len() + head.len() + NUMBER);
    set.arg("SET").arg(key).arg(head).arg("NX").arg("GET").arg("PX").arg(kept);
    let mut left = Cmd::with_capacity(2, key.len() + NUMBER);
    left.arg("PTTL").arg(key);
    let mut commands = Pipeline::with_capacity(2);
    commands.add_command(set).add_command(left);
    commands
}

/// The value that was there, and for how many milliseconds what is there now is kept; as `PTTL` tells it.
pub(super) fn answers(answer: Value) -> Option<(Option<Vec<u8>>, i64)> {
    let Value::Array(answers) = answer else { return None };
    match <[Value; 2]>::try_from(answers) {
        Ok([Value::Nil, Value::Int(left)]) => Some((None, left)),
        Ok([Value::BulkString(value), Value::Int(left)]) => Some((Some(value), left)),
        _ => None,
    }
}

/// What was there.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Met {
    Nothing,
    OtherRequest,
    OtherCaller,
    /// The response follows the head.
    Recorded {
        expires_in: Duration,
    },
    Unavailable(Tombstone),
    Running {
        age: Duration,
    },
    /// What the script has to answer.
    Unclear,
}

/// Decides what a claim has met.
pub(super) fn met(request: &ClaimRequest, value: Option<&[u8]>, left: i64) -> Met {
    let Some(value) = value else { return Met::Nothing };
    let Some(head) = Head::read(value).filter(|_| left > 0) else { return Met::Unclear };
    if head.fingerprint != *request.fingerprint.as_bytes() {
        return Met::OtherRequest;
    }
    if head.caller != *request.caller.as_bytes() {
        return Met::OtherCaller;
    }
    match head.state {
        RECORDED => Met::Recorded { expires_in: millis(left.min(head.retention)) },
        TOMBSTONE => match (StatusCode::from_u16(head.status), code::reason(head.detail)) {
            (Ok(status), Some(reason)) => Met::Unavailable(Tombstone { status, reason }),
            _ => Met::Unclear,
        },
        RUNNING if head.lease != *request.lease.id.as_bytes() => running(&head, left),
        _ => Met::Unclear,
    }
}

/// Somebody's run, from what is left of the time that its last write gave it: see `write.lua`.
fn running(head: &Head, left: i64) -> Met {
    if head.unknown != code::of_unknown(UnknownOutcome::Rerun) {
        return Met::Unclear;
    }
    let (claimed, lease) = match head.written {
        UNTIMED => (0, head.till),
        written => (head.claimed.saturating_sub(written), head.till.saturating_sub(written)),
    };
    // Since the last write, as are the other two.
    let gone = head.retention.max(lease).max(1).saturating_sub(left);
    if gone < lease { Met::Running { age: millis(gone.saturating_sub(claimed)) } } else { Met::Unclear }
}

/// What is less than nothing is nothing: see above for a record that has become younger.
fn millis(count: i64) -> Duration {
    Duration::from_millis(u64::try_from(count).unwrap_or(0))
}

/// More bytes than a number and the words around it have.
const NUMBER: usize = 32;

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::sync::Arc;

    use bytes::Bytes;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::store::machine::{self, Change, Liveness, Millis, Record, State};
    use crate::store::redis::record::{self, Outcome};
    use crate::store::{
        CallerFingerprint, Claim, Completion, Fingerprint, HeldCause, LapsePolicy, Lease, LeaseId, RecordId,
        StoredResponse, TombstoneReason,
    };

    /// A claim of the only key.
    fn claim(id: u8, identity: (u8, u8), duration: u64, retention: u64) -> ClaimRequest {
        ClaimRequest {
            lease: Lease {
                record: RecordId::from_bytes([0; 32]),
                id: LeaseId::from_bytes([id; 16]),
                duration: Duration::from_millis(duration),
            },
            fingerprint: Fingerprint::from_bytes([identity.0; 32]),
            caller: CallerFingerprint::from_bytes([identity.1; 32]),
            retention: Duration::from_millis(retention),
            policy: LapsePolicy { unknown: UnknownOutcome::Rerun, max_attempts: NonZeroU32::new(5).unwrap() },
        }
    }

    fn put((_, change): (impl Sized, Change)) -> Record {
        match change {
            Change::Put(record) => record,
            Change::Keep | Change::Remove => panic!("nothing is written"),
        }
    }

    fn ends() -> [Option<State>; 5] {
        let response = StoredResponse::new(StatusCode::CREATED, Bytes::from_static(b"paid"));
        let tombstone = Tombstone { status: StatusCode::OK, reason: TombstoneReason::Streamed };
        let held = State::Held(HeldCause::Unknown);
        [
            None,
            Some(State::Recorded(Arc::new(response))),
            Some(State::Tombstone(tombstone)),
            Some(State::Free),
            Some(held),
        ]
    }

    /// A record as a first claim or `end.lua` leaves it; timed, as `write.lua` does.
    fn value(of: &ClaimRequest, record: &Record, is_timed: bool) -> Vec<u8> {
        let [retention, duration] = [of.retention, of.lease.duration].map(machine::whole_millis);
        let mut value = record::first(of, retention, duration);
        if is_timed {
            for (at, time) in [(104, record.claimed_at), (112, record.lease_until), (120, record.written_at)] {
                value[at..at + 8].copy_from_slice(&time.0.to_le_bytes());
            }
        }
        let outcome = match &record.state {
            State::Running => return value,
            State::Recorded(response) => Outcome::of(&Completion::Response(response.clone())),
            State::Tombstone(tombstone) => Outcome::of(&Completion::Tombstone(*tombstone)),
            State::Free => Outcome::without_answer(code::FREE, 0),
            State::Held(cause) => Outcome::without_answer(code::HELD, code::of_cause(*cause)),
        };
        value[..3].copy_from_slice(&outcome.begin);
        value[128..130].copy_from_slice(&outcome.end[8..10]);
        value.extend(&outcome.end[10..]);
        value
    }

    /// What the state machine says, as far as a plain claim may say it.
    fn expected(record: &Record, request: &ClaimRequest, now: Millis) -> Met {
        if record.expires_at().is_none_or(|at| at <= now) {
            return Met::Unclear;
        }
        match machine::claim(Some(record), request, now, Liveness::ByClock).0 {
            Claim::Reused => Met::OtherRequest,
            Claim::CallerChanged => Met::OtherCaller,
            Claim::Recorded(recorded) => Met::Recorded { expires_in: recorded.expires_in },
            Claim::Unavailable(tombstone) => Met::Unavailable(tombstone),
            Claim::InFlight { age } if record.lease != request.lease.id => Met::Running { age },
            Claim::InFlight { .. } | Claim::Held | Claim::Acquired(_) => Met::Unclear,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        /// Fails when either identity is not compared, when the caller is compared first, when the claim's own run or a free
        /// record is in flight, when a lease is live for a millisecond more or less, and when an age is not that of the claim.
        #[test]
        fn a_plain_claim_says_what_the_state_machine_says_or_leaves_it_to_the_script(
            (duration, retention) in (0u64..9, 0u64..9),
            renewed in proptest::option::of((0u64..9, 0u64..9)),
            (end, is_timed, later, later_still) in (0usize..5, any::<bool>(), 0u64..4, 0u64..12),
            (id, identity) in (0u8..2, (0u8..2, 0u8..2)),
        ) {
            let at = |millis: u64| Millis::from(Duration::from_millis(1_000_000 + millis));
            let of = claim(0, (0, 0), duration, retention);
            let (mut now, mut is_timed) = (0, is_timed);
            let mut record = put(machine::claim(None, &of, at(now), Liveness::ByClock));
            if let Some((after, duration)) = renewed {
                (now, is_timed) = (now + after, true);
                let lease = Lease { duration: Duration::from_millis(duration), ..of.lease };
                record = put(machine::renew(Some(&record), &lease, at(now)));
            }
            if let Some(state) = ends()[end].clone() {
                now += later;
                record = Record { state, written_at: at(now), ..record };
            }
            let request = claim(id, identity, 5, 5);
            let now = at(now + later_still);
            let left = record.expires_at().map_or(-1, |expires| (expires.0 - now.0).max(0));
            prop_assert_eq!(met(&request, Some(&value(&of, &record, is_timed)), left), expected(&record, &request, now));
        }

        /// Fails when `Head::read` trusts a length, or `running` a time.
        #[test]
        fn anything_may_be_there(mut value in vec(any::<u8>(), 0..200), is_ours in any::<bool>(), left in any::<i64>()) {
            if is_ours && value.len() >= record::HEAD {
                (value[0], value[1], value[3]) = (1, 1 + value[1] % 5, 1);
                for high in [103, 111, 119, 127] {
                    value[high] &= 0x7f;
                }
            }
            let mut request = claim(0, (0, 0), 1, 1);
            if let Some(head) = Head::read(&value) {
                request.fingerprint = Fingerprint::from_bytes(head.fingerprint);
                request.caller = CallerFingerprint::from_bytes(head.caller);
            }
            let _total = met(&request, Some(&value), left);
        }
    }

    /// Between the two commands. Fails when `millis` takes what is less than nothing for more, or `met` says that an end
    /// is kept for longer than its retention.
    #[test]
    fn a_record_that_has_become_younger_since_is_in_flight_and_not_older_than_it_is() {
        let of = claim(0, (0, 0), 30, 60);
        let value = record::first(&of, 60, 30);
        let request = claim(1, (0, 0), 30, 60);
        for (left, age) in [(60, 0), (61, 0), (i64::MAX, 0), (31, 29)] {
            assert_eq!(met(&request, Some(&value), left), Met::Running { age: Duration::from_millis(age) }, "{left}");
        }
        for left in [30, 1, 0, -1, -2, i64::MIN] {
            assert_eq!(met(&request, Some(&value), left), Met::Unclear, "{left}");
        }
        assert_eq!(met(&request, None, 60), Met::Nothing);
        let State::Recorded(response) = ends()[1].clone().unwrap() else { unreachable!() };
        let mut recorded = value;
        recorded[..3].copy_from_slice(&Outcome::of_response(&response).begin);
        let expires_in = Duration::from_millis(60);
        assert_eq!(met(&request, Some(&recorded), 61), Met::Recorded { expires_in });
    }
}
