//! Whom to wake when a record changes, within this process.
//!
//! A record is in the map only while somebody watches it. One change wakes everyone who watches by then; whoever wants
//! the next one subscribes again.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use tokio::sync::Notify;

use super::{RecordId, Watch};

#[derive(Debug, Default)]
pub(crate) struct Watchers {
    watched: HashMap<RecordId, Weak<Notify>>,
}

impl Watchers {
    /// Subscribes to the next change.
    pub(crate) fn watch(&mut self, id: &RecordId) -> Watch {
        let notify = self.notify(id);
        let changed = Arc::clone(&notify).notified_owned();
        // `notify` stays alive with the watch, so that the weak entry in the map is found by the next change.
        Watch::new(async move {
            changed.await;
            drop(notify);
        })
    }

    /// Wakes everyone who watches this record.
    pub(crate) fn changed(&mut self, id: &RecordId) {
        if self.watched.is_empty() {
            return;
        }
        if let Some(notify) = self.watched.remove(id).and_then(|notify| notify.upgrade()) {
            notify.notify_waiters();
        }
    }

    fn notify(&mut self, id: &RecordId) -> Arc<Notify> {
        if let Some(notify) = self.watched.get(id).and_then(Weak::upgrade) {
            return notify;
        }
        self.watched.retain(|_, notify| notify.strong_count() > 0);
        let notify = Arc::new(Notify::new());
        self.watched.insert(*id, Arc::downgrade(&notify));
        notify
    }
}
