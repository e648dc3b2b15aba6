//! Retries do not keep a server down: an outage is simulated on the paused clock, and the defaults are held to how it
//! goes without any retry.
//!
//! - Calls come at random moments and do not wait for each other: 700 or 850 in a second, to a [`server`] that can do
//!   1000. It stalls for 5 seconds. A client waits for an answer for one second at a time.
//! - The calls and their moments are the same for each [`policy`], so what differs is the policy's doing.
//! - Plan, back-off, budget and loop are those of this crate, driven through `reqwest_middleware`. Only the server is
//!   simulated, and the network, which takes no time.
//! - All that is random comes from one seed, so each run gives the same [table](crate#in-an-outage). A test prints it:
//!
//! ```sh
//! cargo test -p client-retry --lib storm -- --nocapture
//! ```
//!
//! A budget is each client's own. Where ten of them share the calls, as processes do, the default pays for ten times as
//! many retries at once, and misses the bars; a tenth of its cap keeps them.

mod course;
mod policy;
mod server;

use std::sync::LazyLock;

use tokio::runtime::Builder;

use self::course::{Course, WINDOW};
use self::policy::Policy;

/// C9. Fails when `Balance::withdraw` takes nothing.
#[test]
fn outage_is_over_as_soon_as_without_retries() {
    for rate in RATES {
        let bar = course(Policy::Never, rate).recovery.unwrap().mul_f64(RECOVERY) + WINDOW;
        for ours in [Policy::Default, Policy::TenOfATenth].map(|policy| course(policy, rate)) {
            assert!(ours.recovery.is_some_and(|recovery| recovery <= bar), "{ours}");
        }
    }
}

/// C9. Fails when `is_overload` does not know an attempt that took too long.
#[test]
fn outage_brings_the_server_hardly_more_at_once_than_without_retries() {
    for rate in RATES {
        let bar = course(Policy::Never, rate).peak() * PEAK;
        for ours in [Policy::Default, Policy::TenOfATenth].map(|policy| course(policy, rate)) {
            assert!(ours.peak() <= bar, "{ours}");
        }
    }
}

/// The same bars can be missed, and it is the budget that keeps them. Fails when `unlimited` has the cap and the prices
/// of the default.
#[test]
fn outage_without_a_budget_goes_on() {
    for rate in RATES {
        let [never, unlimited] = [Policy::Never, Policy::Unlimited].map(|policy| course(policy, rate));
        let bar = never.recovery.unwrap().mul_f64(RECOVERY) + WINDOW;
        assert!(unlimited.recovery.is_none_or(|recovery| recovery > bar), "{unlimited}");
        assert!(unlimited.peak() > never.peak() * PEAK, "{unlimited}");
    }
}

/// A change of the order in which waits are drawn moves the figures a little: the docs then take what is printed. Fails
/// when the default budget adds ten times as much for a success.
#[test]
fn docs_show_what_is_simulated() {
    let docs = include_str!("lib.rs");
    for course in COURSES.iter() {
        println!("{course}");
    }
    for course in COURSES.iter() {
        assert!(docs.contains(&format!("\n//! {course}\n")), "not in the docs: {course}");
    }
}

fn course(policy: Policy, rate: u32) -> &'static Course {
    COURSES.iter().find(|course| course.policy == policy && course.rate == rate).expect("one of each")
}

/// One of each policy at each rate.
static COURSES: LazyLock<Vec<Course>> = LazyLock::new(|| {
    let courses = async {
        let mut courses = Vec::new();
        for rate in RATES {
            for policy in Policy::ALL {
                courses.push(Course::of(policy, rate).await);
            }
        }
        courses
    };
    Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(courses)
});

/// Calls in a second, of the 1000 that the server can do.
const RATES: [u32; 2] = [700, 850];

/// How much longer it may take until all is well, in proportion to how long it takes without retries.
const RECOVERY: f64 = 1.15;

/// How much more may come within a window, in the same proportion.
const PEAK: f64 = 1.2;
