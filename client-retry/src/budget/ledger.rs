//! Which balance a call draws on follows from where it goes: a [`Ledger`] keeps the balance of each origin, from many
//! tasks at once, in bounded space.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reqwest::Url;
use tokio::time::Instant;
use url::Position;

use super::RetryBudget;
use super::balance::Balance;

/// The balances of all origins of one client. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    budget: RetryBudget,
    began: Instant,
    balances: Arc<Mutex<Balances>>,
    /// Whether any balance is kept. While all is well there is none, and a success need not look.
    keeps: Arc<AtomicBool>,
}

/// By scheme, then by host and port as they stand in the URL, so that a lookup allocates nothing.
///
/// An origin that is not here has a full balance.
type Balances = [HashMap<Box<str>, Balance>; 2];

impl Ledger {
    pub(crate) fn new(budget: RetryBudget) -> Self {
        Self { budget, began: Instant::now(), balances: Arc::default(), keeps: Arc::default() }
    }

    /// Takes note that the origin of `url` has answered well.
    pub(crate) fn deposit(&self, url: &Url) {
        // A success beside the first retry may not be seen to count, which is one token of many.
        if !self.keeps.load(Ordering::Relaxed) {
            return;
        }
        let mut balances = self.lock();
        let map = &mut balances[scheme(url)];
        if let Some(balance) = map.get_mut(host(url)) {
            balance.advance(self.budget, self.now());
            balance.deposit(self.budget);
            if balance.is_full(self.budget) {
                map.remove(host(url));
                self.keeps.store(balances.iter().any(|map| !map.is_empty()), Ordering::Relaxed);
            }
        }
    }

    /// Pays for a retry to the origin of `url`; `None` where its balance does not cover one.
    pub(crate) fn withdraw(&self, url: &Url) -> Option<Withdrawal> {
        if self.budget.is_unlimited() {
            return Some(Withdrawal { refund: None });
        }
        let now = self.now();
        let mut balances = self.lock();
        if !balances[scheme(url)].contains_key(host(url)) && !self.make_room(&mut balances, now) {
            return None;
        }
        self.keeps.store(true, Ordering::Relaxed);
        let balance =
            balances[scheme(url)].entry(Box::from(host(url))).or_insert_with(|| Balance::full(self.budget, now));
        balance.advance(self.budget, now);
        balance.withdraw(self.budget).then(|| Withdrawal { refund: Some(Box::new((self.clone(), url.clone()))) })
    }

    /// Whether another origin can be kept, if need be in the place of those that have become full.
    fn make_room(&self, balances: &mut Balances, now: Duration) -> bool {
        let kept = |balances: &Balances| balances.iter().map(HashMap::len).sum::<usize>();
        if kept(balances) >= MAX_ORIGINS {
            for map in balances.iter_mut() {
                map.retain(|_, balance| {
                    balance.advance(self.budget, now);
                    !balance.is_full(self.budget)
                });
            }
        }
        kept(balances) < MAX_ORIGINS
    }

    fn refund(&self, url: &Url) {
        if let Some(balance) = self.lock()[scheme(url)].get_mut(host(url)) {
            balance.refund(self.budget);
        }
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// No code of another's runs under the lock, and no balance is half written.
    fn lock(&self) -> MutexGuard<'_, Balances> {
        self.balances.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A retry that is paid for. It is paid back when this is dropped, unless the retry is sent.
#[must_use]
pub(crate) struct Withdrawal {
    /// In a box, since few calls need one and each has room for it.
    refund: Option<Box<(Ledger, Url)>>,
}

impl Withdrawal {
    /// The retry is being sent.
    pub(crate) fn spend(mut self) {
        self.refund = None;
    }
}

impl Drop for Withdrawal {
    fn drop(&mut self) {
        if let Some((ledger, url)) = self.refund.as_deref() {
            ledger.refund(url);
        }
    }
}

fn scheme(url: &Url) -> usize {
    usize::from(url.scheme() == "https")
}

fn host(url: &Url) -> &str {
    &url[Position::BeforeHost..Position::AfterPort]
}

/// For how many origins at most a balance is kept that is not full: about 100 bytes each.
pub(super) const MAX_ORIGINS: usize = 1024;

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn url(url: &str) -> Url {
        Url::parse(url).unwrap()
    }

    /// How many retries are still paid for, which are then spent.
    fn spent(ledger: &Ledger, origin: &Url) -> usize {
        let withdrawals = std::iter::repeat_with(|| ledger.withdraw(origin)).take(10_000).take_while(Option::is_some);
        withdrawals.flatten().map(Withdrawal::spend).count()
    }

    /// Fails when `host` ends before the port, or `scheme` is one for all.
    #[test]
    fn each_origin_has_a_balance_of_its_own() {
        let ledger = Ledger::new(RetryBudget::default());
        for other in ["http://a.example/", "https://a.example/", "http://a.example:81/", "http://b.example/"] {
            assert_eq!(spent(&ledger, &url(other)), 100, "{other}");
        }
        for same in ["http://a.example/other?x", "http://a.example:80/", "http://alice:secret@A.example/"] {
            assert_eq!(spent(&ledger, &url(same)), 0, "{same}");
        }
    }

    /// Fails when `spend` does nothing, or `Drop` does not pay back.
    #[test]
    fn retry_that_is_not_sent_is_paid_back() {
        let ledger = Ledger::new(RetryBudget::default());
        let origin = url("http://a.example/");
        for _ in 0..1000 {
            assert!(ledger.withdraw(&origin).is_some());
        }
        assert_eq!(spent(&ledger, &origin), 100);
    }

    /// Fails when `deposit` adds nothing, or removes every balance.
    #[test]
    fn successes_fund_retries() {
        let ledger = Ledger::new(RetryBudget::default());
        let origin = url("http://a.example/");
        spent(&ledger, &origin);
        for _ in 0..25 {
            ledger.deposit(&origin);
        }
        assert_eq!(spent(&ledger, &origin), 2);
    }

    /// Fails when `deposit` keeps a full balance, or `make_room` removes none.
    #[tokio::test(start_paused = true)]
    async fn only_so_many_origins_are_kept() {
        let ledger = Ledger::new(RetryBudget::default());
        for i in 0..MAX_ORIGINS {
            assert_eq!(spent(&ledger, &url(&format!("http://{i}.example/"))), 100);
        }
        let another = url("http://another.example/");
        assert_eq!(spent(&ledger, &another), 0, "what the others lack would be forgotten");
        for _ in 0..1000 {
            ledger.deposit(&url("http://0.example/"));
        }
        assert_eq!(spent(&ledger, &another), 100);
        assert_eq!(spent(&ledger, &url("http://0.example/")), 0);
        advance(Duration::from_secs(1000)).await;
        assert_eq!(spent(&ledger, &url("http://0.example/")), 100);
    }

    /// Fails when `withdraw` asks the balance although nothing limits it.
    #[test]
    fn unlimited_budget_pays_for_everything() {
        let ledger = Ledger::new(RetryBudget::unlimited());
        assert_eq!(spent(&ledger, &url("http://a.example/")), 10_000);
    }
}
