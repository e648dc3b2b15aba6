//! The Postgres store keeps every property: within one process and between processes, straight and behind an old pooler,
//! and with handlers' transactions at each isolation level.
//!
//! All tests share one server and one pooler; each is in a schema of its own.

use idempotency_layer::conformance::transactional::ErasedTransactional;
use idempotency_layer::conformance::{Erased, PostgresHarness};
use idempotency_layer::store::postgres::Isolation;
use idempotency_tests::postgres::{PgBouncer, shared};
use tokio::sync::OnceCell;

pub(super) async fn straight() -> PostgresHarness {
    PostgresHarness::new(shared().await.url())
}

pub(super) async fn pooled() -> PostgresHarness {
    static POOLER: OnceCell<PgBouncer> = OnceCell::const_new();
    let server = shared().await;
    let pooler = POOLER.get_or_init(|| PgBouncer::start(server)).await;
    PostgresHarness::behind_pooler(pooler.url("postgres"), server.url())
}

mod clones {
    idempotency_layer::conformance_tests!(super::straight().await.clones());
}

mod connections {
    idempotency_layer::conformance_tests!(super::straight().await);
}

mod erased {
    idempotency_layer::conformance_tests!(super::Erased(super::straight().await));
}

mod read_committed {
    idempotency_layer::transactional_conformance_tests!(super::straight().await);
}

mod repeatable_read {
    idempotency_layer::transactional_conformance_tests!(
        super::straight().await.isolation(super::Isolation::RepeatableRead)
    );
}

mod serializable {
    idempotency_layer::transactional_conformance_tests!(
        super::straight().await.clones().isolation(super::Isolation::Serializable)
    );
}

mod erased_transactions {
    idempotency_layer::transactional_conformance_tests!(super::ErasedTransactional(super::straight().await));
}

mod pooled {
    mod connections {
        idempotency_layer::conformance_tests!(super::super::pooled().await);
    }

    mod erased {
        idempotency_layer::conformance_tests!(super::super::Erased(super::super::pooled().await));
    }

    mod read_committed {
        idempotency_layer::transactional_conformance_tests!(super::super::pooled().await);
    }

    mod repeatable_read {
        idempotency_layer::transactional_conformance_tests!(
            super::super::pooled().await.isolation(super::super::Isolation::RepeatableRead)
        );
    }

    mod serializable {
        idempotency_layer::transactional_conformance_tests!(
            super::super::pooled().await.clones().isolation(super::super::Isolation::Serializable)
        );
    }

    mod erased_transactions {
        idempotency_layer::transactional_conformance_tests!(super::super::ErasedTransactional(
            super::super::pooled().await
        ));
    }
}
