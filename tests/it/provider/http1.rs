//! Answers of HTTP/1.1 that break off, byte by byte.

use idempotency_tests::provider::{Ending, Fault, Provider};
use idempotency_tests::wire::Version;

use super::{Bare, statuses};

/// What a client of a provider with this fault reads until the connection is closed. It has charged by then.
async fn read(ending: Ending) -> (String, Vec<Option<u16>>) {
    let provider = Provider::start(Version::Http1).await;
    provider.script([Fault::committed(ending)]);
    let (heard, ended) = Bare::pay(&provider, "a").await;
    assert_eq!((ended, provider.ledger().len()), (Ok(()), 1));
    (heard, statuses(&provider))
}

/// Fails when the whole head is sent.
#[tokio::test]
async fn half_a_head_is_no_head() {
    let (heard, statuses) = read(Ending::HalfHead).await;
    assert!(heard.starts_with("HTTP/1.1 201 Created\r\n"), "{heard}");
    assert!(!heard.contains("\r\n\r\n"), "{heard}");
    assert_eq!(statuses, [None]);
}

/// Fails when the length is that of the half, and when the whole is sent.
#[tokio::test]
async fn a_short_body_is_shorter_than_declared() {
    let (heard, statuses) = read(Ending::ShortBody).await;
    let (head, body) = heard.split_once("\r\n\r\n").unwrap();
    let declared = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let declared: usize = declared.parse().unwrap();
    assert!(!body.is_empty() && body.len() == declared / 2, "{heard}");
    assert_eq!(statuses, [Some(201)]);
}

/// Fails when the last chunk is sent.
#[tokio::test]
async fn open_chunks_have_the_whole_body_and_no_end() {
    let (heard, statuses) = read(Ending::OpenChunks).await;
    let (head, body) = heard.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("transfer-encoding: chunked") && !head.contains("content-length"), "{heard}");
    let (size, chunk) = body.split_once("\r\n").unwrap();
    let chunk = chunk.strip_suffix("\r\n").unwrap();
    assert_eq!(usize::from_str_radix(size, 16).unwrap(), chunk.len());
    assert!(chunk.ends_with('}'), "{heard}");
    assert_eq!(statuses, [Some(201)]);
}
