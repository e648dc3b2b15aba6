//! What a mutant keeps of a response, and what it loses.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use idempotency_layer::store::{StoredResponse, Tombstone, TombstoneReason};

use super::Mutation;

pub(super) fn kept(response: &Arc<StoredResponse>, mutation: Option<Mutation>) -> Arc<StoredResponse> {
    let mut kept = StoredResponse::clone(response);
    match mutation {
        Some(Mutation::UncommonStatusesAreLost) if kept.status.canonical_reason().is_none() => {
            kept.status = StatusCode::OK;
        }
        Some(Mutation::OneValueForEachHeader) => {
            let mut headers = HeaderMap::new();
            for (name, value) in &kept.headers {
                headers.insert(name, value.clone());
            }
            kept.headers = headers;
        }
        Some(Mutation::HeadersAreText) => {
            for value in kept.headers.values_mut() {
                *value = HeaderValue::from_str(&String::from_utf8_lossy(value.as_bytes())).unwrap();
            }
        }
        Some(Mutation::BodiesAreText) => {
            kept.body = Bytes::from(String::from_utf8_lossy(&kept.body).into_owned());
        }
        Some(Mutation::TrailersAreDropped) => kept.trailers = None,
        _ => {}
    }
    Arc::new(kept)
}

pub(super) fn buried(tombstone: Tombstone, mutation: Option<Mutation>) -> Tombstone {
    match mutation {
        Some(Mutation::OneTombstoneReason) => Tombstone { reason: TombstoneReason::TooLarge, ..tombstone },
        _ => tombstone,
    }
}
