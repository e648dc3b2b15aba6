//! What a store should answer, as plainly as it can be said.
//!
//! Ids are small numbers, the record is a handful of facts, and every rule is an `if` in the order of the docs.

use std::time::Duration;

/// A claim as the model sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) id: Id,
    pub(super) fingerprint: u8,
    pub(super) caller: u8,
    pub(super) lease: Duration,
    pub(super) retention: Duration,
    pub(super) hold: bool,
    pub(super) max_attempts: u32,
}

/// A holder or an operator's decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Id {
    Holder(usize),
    Decision(usize),
    /// None that the script knows.
    Unknown,
}

/// What any verb answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Acquired { attempt: u32 },
    InFlight { age: Duration },
    Recorded { by: Id },
    Unavailable { by: Id },
    Held,
    Reused,
    CallerChanged,
    Renewed,
    Done,
    Fenced,
    Absent,
    Running { id: Id, age: Duration, lapsed: bool },
    Free,
    HeldRecord(HeldRecord),
}

/// A held record, as an operator is told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeldRecord {
    pub(super) hold: Id,
    pub(super) attempt: u32,
    pub(super) by_lapse: bool,
    pub(super) age: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Is {
    Absent,
    Running,
    Recorded,
    Tombstone,
    Free,
    Held,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Model {
    now: Duration,
    is: Is,
    /// The last claim that was acquired.
    request: Request,
    /// Who wrote the state.
    writer: Id,
    attempt: u32,
    lapsed_runs: u32,
    run_began: Duration,
    lease_ends: Duration,
    retention_ends: Duration,
    held_since: Duration,
    held_by_lapse: bool,
    latest_hold: Id,
}

impl Model {
    pub(super) fn new(any: Request) -> Self {
        Self {
            now: Duration::ZERO,
            is: Is::Absent,
            request: any,
            writer: Id::Unknown,
            attempt: 0,
            lapsed_runs: 0,
            run_began: Duration::ZERO,
            lease_ends: Duration::ZERO,
            retention_ends: Duration::ZERO,
            held_since: Duration::ZERO,
            held_by_lapse: false,
            latest_hold: any.id,
        }
    }

    pub(super) fn pass(&mut self, by: Duration) {
        self.now += by;
        let lease_is_live = self.is == Is::Running && self.now < self.lease_ends;
        let waits_for_an_operator = self.is == Is::Held || self.is == Is::Running && self.request.hold;
        if !waits_for_an_operator && !lease_is_live && self.now >= self.retention_ends {
            self.is = Is::Absent;
        }
    }

    pub(super) fn claim(&mut self, request: Request) -> Answer {
        if self.is == Is::Absent {
            self.attempt = 0;
            self.lapsed_runs = 0;
            return self.run(request);
        }
        if request.fingerprint != self.request.fingerprint {
            return Answer::Reused;
        }
        if request.caller != self.request.caller {
            return Answer::CallerChanged;
        }
        if self.is == Is::Recorded {
            return Answer::Recorded { by: self.writer };
        }
        if self.is == Is::Tombstone {
            return Answer::Unavailable { by: self.writer };
        }
        if self.is == Is::Held {
            return Answer::Held;
        }
        if self.is == Is::Free {
            let freed_it_itself = request.id == self.writer;
            return if freed_it_itself {
                Answer::InFlight { age: self.now - self.run_began }
            } else {
                self.run(request)
            };
        }
        if request.id == self.writer {
            self.live_for(request.lease);
            return Answer::Acquired { attempt: self.attempt };
        }
        if self.now < self.lease_ends {
            return Answer::InFlight { age: self.now - self.run_began };
        }
        self.lapsed_runs += 1;
        if self.request.hold || self.lapsed_runs >= self.request.max_attempts {
            self.held_by_lapse = true;
            self.become_written(Is::Held, request.id);
            return Answer::Held;
        }
        self.run(request)
    }

    fn run(&mut self, request: Request) -> Answer {
        self.is = Is::Running;
        self.request = request;
        self.writer = request.id;
        self.attempt += 1;
        self.run_began = self.now;
        self.live_for(request.lease);
        Answer::Acquired { attempt: self.attempt }
    }

    fn live_for(&mut self, lease: Duration) {
        self.lease_ends = self.now + lease;
        self.retention_ends = self.now + self.request.retention;
    }

    fn become_written(&mut self, is: Is, by: Id) {
        self.is = is;
        self.writer = by;
        self.held_since = self.now;
        if is == Is::Held {
            self.latest_hold = by;
        }
        self.retention_ends = self.now + self.request.retention;
    }

    fn runs(&self, id: Id) -> bool {
        self.is == Is::Running && self.writer == id
    }

    pub(super) fn renew(&mut self, id: Id, lease: Duration) -> Answer {
        if self.runs(id) {
            self.live_for(lease);
            return Answer::Renewed;
        }
        if self.is != Is::Absent && self.writer == id { Answer::Renewed } else { Answer::Fenced }
    }

    pub(super) fn complete(&mut self, id: Id, buries: bool) -> Answer {
        self.end(id, if buries { Is::Tombstone } else { Is::Recorded })
    }

    pub(super) fn release(&mut self, id: Id) -> Answer {
        self.end(id, Is::Free)
    }

    pub(super) fn hold(&mut self, id: Id) -> Answer {
        if self.runs(id) {
            self.held_by_lapse = false;
        }
        self.end(id, Is::Held)
    }

    fn end(&mut self, id: Id, is: Is) -> Answer {
        if self.runs(id) {
            self.become_written(is, id);
            return Answer::Done;
        }
        if self.is == is && self.writer == id { Answer::Done } else { Answer::Fenced }
    }

    pub(super) fn forget(&mut self, id: Id) -> Answer {
        if self.runs(id) {
            self.is = Is::Absent;
        }
        if self.is == Is::Absent { Answer::Done } else { Answer::Fenced }
    }

    pub(super) fn settle(&mut self, hold: Id, by: Id) -> Answer {
        self.decide(hold, by, Is::Recorded)
    }

    pub(super) fn free(&mut self, hold: Id, by: Id) -> Answer {
        if self.is_held_by(hold) {
            self.lapsed_runs = 0;
        }
        self.decide(hold, by, Is::Free)
    }

    fn decide(&mut self, hold: Id, by: Id, is: Is) -> Answer {
        if self.is_held_by(hold) {
            self.become_written(is, by);
        }
        if self.is == is && self.writer == by { Answer::Done } else { Answer::Fenced }
    }

    fn is_held_by(&self, hold: Id) -> bool {
        (self.is == Is::Held || self.lapsed_under_hold()) && self.writer == hold
    }

    fn lapsed_under_hold(&self) -> bool {
        self.is == Is::Running && self.request.hold && self.now >= self.lease_ends
    }

    pub(super) fn forget_held(&mut self, hold: Id) -> Answer {
        if self.is_held_by(hold) {
            self.is = Is::Absent;
        }
        if self.is == Is::Absent { Answer::Done } else { Answer::Fenced }
    }

    pub(super) fn look(&self) -> Answer {
        match self.is {
            Is::Absent => Answer::Absent,
            Is::Running if self.lapsed_under_hold() => Answer::HeldRecord(self.held()),
            Is::Running => {
                let (age, lapsed) = (self.now - self.run_began, self.now >= self.lease_ends);
                Answer::Running { id: self.writer, age, lapsed }
            }
            Is::Recorded => Answer::Recorded { by: self.writer },
            Is::Tombstone => Answer::Unavailable { by: self.writer },
            Is::Free => Answer::Free,
            Is::Held => Answer::HeldRecord(self.held()),
        }
    }

    pub(super) fn listed(&self) -> Option<HeldRecord> {
        (self.is == Is::Held || self.lapsed_under_hold()).then(|| self.held())
    }

    fn held(&self) -> HeldRecord {
        let lapsed = self.lapsed_under_hold();
        HeldRecord {
            hold: self.writer,
            attempt: self.attempt,
            by_lapse: lapsed || self.held_by_lapse,
            age: self.now - if lapsed { self.lease_ends } else { self.held_since },
        }
    }

    /// Whose the latest hold is, or any claim's while there was none.
    pub(super) fn latest_hold(&self) -> usize {
        let latest = if self.lapsed_under_hold() { self.writer } else { self.latest_hold };
        match latest {
            Id::Holder(at) => at,
            other => unreachable!("{other:?} does not hold"),
        }
    }

    /// Whether this id wrote the state without ever having run: it found a lapsed run and held it.
    pub(super) fn held_without_running(&self, id: Id) -> bool {
        self.is == Is::Held && self.held_by_lapse && self.writer == id
    }
}
