//! The SQLite store keeps every property, within one process and between processes.

use idempotency_layer::conformance::{Erased, SqliteHarness};

mod clones {
    use super::SqliteHarness;

    idempotency_layer::conformance_tests!(SqliteHarness::clones(tempfile::tempdir().unwrap().path()));
}

mod processes {
    use super::SqliteHarness;

    idempotency_layer::conformance_tests!(SqliteHarness::processes(tempfile::tempdir().unwrap().path()));
}

mod erased {
    use super::{Erased, SqliteHarness};

    idempotency_layer::conformance_tests!(Erased(SqliteHarness::clones(tempfile::tempdir().unwrap().path())));
}

/// Fails when `machine::renew` leaves the lease as it was.
#[test]
fn one_process_answers_like_the_model() {
    let folder = tempfile::tempdir().unwrap();
    crate::model::agrees(64, || SqliteHarness::clones(folder.path())).unwrap();
}

/// Fails when `machine::renew` leaves the lease as it was.
#[test]
fn processes_answer_like_the_model() {
    let folder = tempfile::tempdir().unwrap();
    crate::model::agrees(64, || SqliteHarness::processes(folder.path())).unwrap();
}

mod transactional {
    use idempotency_layer::conformance::SqliteHarness;
    use idempotency_layer::conformance::transactional::ErasedTransactional;

    mod clones {
        use super::SqliteHarness;

        idempotency_layer::transactional_conformance_tests!(SqliteHarness::clones(tempfile::tempdir().unwrap().path()));
    }

    mod processes {
        use super::SqliteHarness;

        idempotency_layer::transactional_conformance_tests!(SqliteHarness::processes(
            tempfile::tempdir().unwrap().path()
        ));
    }

    mod erased {
        use super::{ErasedTransactional, SqliteHarness};

        idempotency_layer::transactional_conformance_tests!(ErasedTransactional(SqliteHarness::clones(
            tempfile::tempdir().unwrap().path()
        )));
    }
}
