//! Settings that would break the promise are refused before there is a service.

use std::time::Duration;

use idempotency_layer::{ConfigErrorKind, IdempotencyLayer, MemoryStore};
use tower::Layer;

fn layer() -> IdempotencyLayer<MemoryStore> {
    IdempotencyLayer::new(MemoryStore::new())
}

fn refused(layer: IdempotencyLayer<MemoryStore>) -> (ConfigErrorKind, String) {
    let error = layer.clone().validate().expect_err("a refusal");
    // Whoever does not ask is stopped all the same, with the same words.
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| layer.layer(()))).expect_err("a panic");
    let words = panic.downcast_ref::<String>().expect("words");
    assert!(words.contains(&error.to_string()), "{words}");
    (error.kind(), error.to_string())
}

/// S23. Fails when `Config::check` leaves out any of its conditions, when `documentation_link` takes an address that is
/// empty or has a blank or an angle bracket in it, and when `layer()` does not check.
#[test]
fn nonsense_is_refused_when_built_and_the_error_says_why() {
    let day = Duration::from_secs(24 * 60 * 60);
    let cases = [
        (layer().lease(Duration::ZERO), ConfigErrorKind::Lease, "0ns"),
        (layer().lease(Duration::from_millis(99)), ConfigErrorKind::Lease, "99ms"),
        (layer().lease(day * 2).retention(day * 3), ConfigErrorKind::Lease, "172800s"),
        (layer().lease(Duration::MAX).retention(Duration::MAX), ConfigErrorKind::Lease, "24 h"),
        (layer().retention(Duration::ZERO), ConfigErrorKind::RetentionBelowLease, "shorter than the lease"),
        (layer().retention(Duration::from_millis(29_999)), ConfigErrorKind::RetentionBelowLease, "30s"),
        (layer().retention(Duration::MAX), ConfigErrorKind::Retention, "ten years"),
        (layer().scope(""), ConfigErrorKind::EmptyScope, "scope"),
        (layer().max_running(0), ConfigErrorKind::MaxRunning, "max_running"),
        (layer().max_buffered(1), ConfigErrorKind::MaxBuffered, "max_buffered"),
        (layer().max_attempts(0), ConfigErrorKind::MaxAttempts, "max_attempts"),
        (layer().record_deadline(Duration::MAX), ConfigErrorKind::RecordDeadline, "record_deadline"),
        (layer().methods([]), ConfigErrorKind::NoMethods, "method"),
        (layer().documentation(""), ConfigErrorKind::Documentation, "documentation"),
        (layer().documentation("https://a/>b"), ConfigErrorKind::Documentation, "documentation"),
        (layer().documentation("https://a/ b"), ConfigErrorKind::Documentation, "documentation"),
    ];
    for (layer, kind, words) in cases {
        let (refused_as, text) = refused(layer);
        assert_eq!(refused_as, kind, "{text}");
        assert!(text.contains(words), "{text}");
    }
}

/// The order of the setters does not matter. Fails when `lease` refuses one above the retention so far, or `retention`
/// one below the lease so far.
#[test]
fn settings_are_checked_as_a_whole() {
    let hours = |hours: u64| Duration::from_secs(hours * 60 * 60);
    assert!(layer().retention(hours(1)).lease(hours(2)).retention(hours(48)).validate().is_ok());
    let second = Duration::from_secs(1);
    assert!(layer().retention(second).lease(second).validate().is_ok());
    assert!(layer().lease(Duration::from_millis(100)).retention(Duration::from_millis(100)).validate().is_ok());
    assert!(layer().validate().is_ok());
}
