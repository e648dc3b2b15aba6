//! What other retries make of the faults that this one is for is measured, and the tables in the crate's docs are what was
//! measured.
//!
//! Every client makes the same call, a POST that charges, to a provider of its own with the same fault. Each table is a
//! [group](situation::Group), a row is a [`Situation`](situation::Situation), a column a [`Peer`](peer::Peer), and
//! [`Cell`](cell::Cell) says what is in one.
//!
//! To renew `client-retry/PEERS.md`, put the tables that the failed test prints into the place of those that are there.

mod cell;
mod peer;
mod situation;

use futures_util::stream::{self, StreamExt};

use cell::Call;
use situation::{Group, groups};

/// Fails when `delay` does not add what was asked, `of_connect` takes invalid data for a connection that did not come
/// about, or the policy for tower has another retry.
#[tokio::test]
async fn tables_of_the_docs_are_what_was_measured() {
    let groups = groups();
    let mut calls = Vec::new();
    for group in &groups {
        for situation in &group.situations {
            for peer in group.peers {
                calls.push(Call::prepare(situation.clone(), *peer).await);
            }
        }
    }
    let calls = stream::iter(calls).enumerate().map(|(place, call)| async move { (place, call.measure().await) });
    let mut cells: Vec<_> = calls.buffer_unordered(AT_ONCE).collect().await;
    cells.sort_unstable_by_key(|(place, _)| *place);
    let mut cells = cells.into_iter().map(|(_, cell)| cell.to_string());
    let measured: Vec<_> = groups.iter().map(|group| table(group, &mut cells)).collect();
    assert!(measured == tables_of(DOCUMENT), "client-retry/PEERS.md says otherwise than\n\n{}", measured.join("\n"));
}

/// Fails when another version of a peer is locked.
#[test]
fn versions_of_the_docs_are_those_that_were_measured() {
    for name in ["reqwest-retry", "reqwest", "tower"] {
        let (_, entry) = LOCKED.split_once(&format!("name = \"{name}\"\nversion = \"")).unwrap();
        let (version, _) = entry.split_once('"').unwrap();
        assert!(text().contains(&format!("`{name}` {version}")), "{name} is {version}");
    }
}

/// Fails when a figure of the baseline changes.
#[test]
fn costs_of_the_docs_are_those_that_are_counted() {
    let cost = |kind| {
        let line = FIGURES.lines().find_map(|line| line.strip_prefix(kind)?.strip_prefix(' ')).unwrap();
        let figures: Vec<u32> = line.split_whitespace().map(|figure| figure.parse().unwrap()).collect();
        (figures[0], figures[1])
    };
    let nothing = cost("nothing");
    for kind in ["peer", "keyed"] {
        let (instructions, allocations) = (cost(kind).0 - nothing.0, cost(kind).1 - nothing.1);
        let said = format!("adds {allocations} allocations and {instructions} instructions");
        assert!(text().contains(&said), "{kind} {said}");
    }
}

/// The document without its line breaks.
fn text() -> String {
    DOCUMENT.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn table(group: &Group, cells: &mut impl Iterator<Item = String>) -> String {
    let columns = group.peers.len();
    let head = row(group.name, group.peers.iter().map(|peer| peer.name().to_owned()));
    let rule = format!("|{}\n", "---|".repeat(columns + 1));
    let rows = group.situations.iter().map(|situation| row(situation.name, cells.by_ref().take(columns)));
    [head, rule].into_iter().chain(rows).collect()
}

fn row(name: &str, cells: impl Iterator<Item = String>) -> String {
    format!("| {name} | {} |\n", cells.collect::<Vec<_>>().join(" | "))
}

/// Each run of lines that begin with a bar.
fn tables_of(document: &str) -> Vec<String> {
    let mut tables = Vec::new();
    let mut is_within = false;
    for line in document.lines() {
        let is_row = line.starts_with('|');
        if is_row && !is_within {
            tables.push(String::new());
        }
        if let (true, Some(table)) = (is_row, tables.last_mut()) {
            *table += line;
            *table += "\n";
        }
        is_within = is_row;
    }
    tables
}

/// How many calls are made at the same time; more would keep each other waiting.
const AT_ONCE: usize = 16;

const FIGURES: &str = include_str!("../../../../client-retry/benches/figures/baseline.txt");

const LOCKED: &str = include_str!("../../../../Cargo.lock");

const DOCUMENT: &str = include_str!("../../../../client-retry/PEERS.md");
