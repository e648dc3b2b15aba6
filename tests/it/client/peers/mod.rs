//! What other retries make of the faults that this one is for is measured, and the tables in the crate's docs are what was
//! measured.
//!
//! Every client makes the same call, a POST that charges, to a provider of its own with the same fault. Each table is a
//! [`Group`], a row is a [`Situation`], a column a [`Peer`], and [`Cell`](cell::Cell) says what is in one.
//!
//! To renew `client-retry/PEERS.md`, put the tables that the failed test prints into the place of those that are there.

mod cell;
mod peer;
mod situation;

use futures_util::stream::{self, StreamExt};

use cell::Call;
use peer::Peer;
use situation::{Group, Situation, groups};

/// Fails when `delay` does not add what was asked, `of_connect` takes invalid data for a connection that did not come
/// about, or the policy for tower has another retry.
#[tokio::test]
async fn tables_of_the_docs_are_what_was_measured() {
    let groups = groups();
    let calls = groups.iter().flat_map(|group| group.situations.iter().map(move |situation| (situation, group.peers)));
    let calls: Vec<_> = calls.flat_map(|(situation, peers)| peers.iter().map(move |peer| (situation, *peer))).collect();
    let written = tables_of(DOCUMENT);
    let expected: Vec<_> = written.iter().flat_map(|table| cells_of(table)).collect();
    let mut cells = vec![String::new(); calls.len()];
    // What differs because the machine was busy does not differ each time.
    for _ in 0..PASSES {
        let differ = (0..calls.len()).filter(|&place| expected.get(place) != Some(&cells[place].as_str()));
        for (place, cell) in measured(differ.map(|place| (place, calls[place]))).await {
            cells[place] = cell;
        }
    }
    let mut cells = cells.into_iter();
    let measured: Vec<_> = groups.iter().map(|group| table(group, &mut cells)).collect();
    assert!(measured == written, "client-retry/PEERS.md says otherwise than\n\n{}", measured.join("\n"));
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

/// The cells of these calls, each with its place.
async fn measured(calls: impl Iterator<Item = (usize, (&Situation, Peer))>) -> Vec<(usize, String)> {
    let mut prepared = Vec::new();
    for (place, (situation, peer)) in calls {
        prepared.push((place, Call::prepare(situation.clone(), peer).await));
    }
    let cells = stream::iter(prepared).map(|(place, call)| async move { (place, call.measure().await.to_string()) });
    cells.buffer_unordered(AT_ONCE).collect().await
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

/// What is below the head of a table and right of its first column.
fn cells_of(table: &str) -> impl Iterator<Item = &str> {
    table.lines().skip(2).flat_map(|row| row.trim_end_matches(" |").split(" | ").skip(1))
}

/// How often what differs is measured.
const PASSES: usize = 3;

/// How many calls are made at the same time; more would keep each other waiting.
const AT_ONCE: usize = 12;

const FIGURES: &str = include_str!("../../../../client-retry/benches/figures/baseline.txt");

const LOCKED: &str = include_str!("../../../../Cargo.lock");

const DOCUMENT: &str = include_str!("../../../../client-retry/PEERS.md");
