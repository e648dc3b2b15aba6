//! Held records are found by walking over the keys of every server.
//!
//! A list of them would be a second key, which a script of one key cannot keep, and operators ask seldom. In a cluster a
//! key may go from a node that is yet to be walked over to one that was: after such a move the walk is repeated, and what
//! any of the walks has found is listed. While slots move without a pause, a record may still be missed.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use redis::{Value, from_redis_value};
use tokio::time::sleep;

use super::RedisStore;
use super::failure::of_verb;
use crate::store::code::{HELD, RUNNING, of_unknown};
use crate::store::{HeldPage, HeldRecord, Look, Page, RecordId, Store, StoreError, StoreErrorKind, UnknownOutcome};

/// One page, in the order of the ids.
pub(super) async fn list(store: &RedisStore, page: &Page) -> Result<HeldPage, StoreError> {
    let server = &store.shared.server;
    let mut held = BTreeMap::new();
    for _ in 0..WALKS {
        let before = server.layout().await.map_err(of_verb)?;
        walk(store, page, &mut held).await?;
        if before.is_some() && server.layout().await.map_err(of_verb)? == before {
            break;
        }
        sleep(PAUSE).await;
    }
    Ok(HeldPage::cut(held.into_values().collect(), page))
}

async fn walk(store: &RedisStore, page: &Page, held: &mut BTreeMap<RecordId, HeldRecord>) -> Result<(), StoreError> {
    for node in store.shared.server.nodes().await.map_err(of_verb)? {
        let mut cursor = 0_u64;
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(pattern(&store.prefix)).arg("COUNT").arg(KEYS_PER_STEP);
            let answer = store.shared.server.send_to(&node, &scan).await.map_err(of_verb)?;
            let (next, keys): (u64, Vec<Vec<u8>>) = from_redis_value(answer).map_err(|error| of_verb(error.into()))?;
            let records: Vec<RecordId> = keys.iter().filter_map(|key| store.record_of(key)).collect();
            let wanted = records.into_iter().filter(|record| page.start().is_none_or(|start| record > start));
            let found = stream::iter(wanted.map(|record| look(store, record))).buffer_unordered(LOOKS_AT_ONCE);
            let found: Vec<Option<HeldRecord>> = found.try_collect().await?;
            held.extend(found.into_iter().flatten().map(|record| (record.record, record)));
            // No more than the page and a sign of the next.
            while held.len() > usize::from(page.limit().get()) + 1 {
                held.pop_last();
            }
            cursor = next;
            if cursor == 0 {
                break;
            }
        }
    }
    Ok(())
}

/// The record, if it is held. One that cannot be read is passed over.
async fn look(store: &RedisStore, record: RecordId) -> Result<Option<HeldRecord>, StoreError> {
    let mut peek = redis::cmd("GETRANGE");
    let key = store.key(&record);
    peek.arg(&key[..]).arg(1).arg(3);
    let peeked = match store.shared.server.send(&key, &peek).await {
        Ok(Value::BulkString(bytes)) => bytes,
        Ok(_) => return Ok(None),
        Err(error) => {
            let error = of_verb(error);
            return if error.kind() == StoreErrorKind::Corrupt { Ok(None) } else { Err(error) };
        }
    };
    let may_be_held = match peeked[..] {
        [state, _, unknown] => {
            let (state, unknown) = (i64::from(state), i64::from(unknown));
            state == HELD || (state == RUNNING && unknown == of_unknown(UnknownOutcome::Hold))
        }
        _ => false,
    };
    if !may_be_held {
        return Ok(None);
    }
    match store.look(&record).await {
        Ok(Look::Held(held)) => Ok(Some(held)),
        Ok(_) => Ok(None),
        Err(error) if matches!(error.kind(), StoreErrorKind::Corrupt | StoreErrorKind::Newer) => Ok(None),
        Err(error) => Err(error),
    }
}

impl RedisStore {
    /// The record that a key is of; none if it is not one of the store's.
    fn record_of(&self, key: &[u8]) -> Option<RecordId> {
        let id = key.strip_prefix(self.prefix.as_bytes())?;
        std::str::from_utf8(id).ok()?.parse().ok()
    }
}

/// The prefix as a pattern that means only itself.
fn pattern(prefix: &str) -> String {
    let mut pattern = String::with_capacity(prefix.len() + 1);
    for letter in prefix.chars() {
        if matches!(letter, '*' | '?' | '[' | ']' | '\\' | '^') {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern.push('*');
    pattern
}

/// How often the keys are walked over at most, and how long slots are given to settle in between.
const WALKS: usize = 5;
const PAUSE: Duration = Duration::from_millis(20);

const KEYS_PER_STEP: usize = 1000;
const LOOKS_AT_ONCE: usize = 100;
