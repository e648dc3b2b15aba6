//! What must be survived: each situation has a number here and a test named after its result.
//!
//! A test's doc names its situation, then a change to the product that makes it fail. What stores must do by themselves in
//! these situations is on the conformance list and in the stores' own tests.
//!
//! | | situation | result |
//! |---|---|---|
//! | S1 | the process is killed after the claim and before the record | once the lease has lapsed a retry is attempt 2; under Hold the key is held |
//! | S2 | it is killed after the record and before the answer | the retry replays |
//! | S3 | the client disconnects after its claim, over HTTP/1.1 or HTTP/2 | the run goes on and is recorded, and the retry replays |
//! | S4 | the client disconnects in mid-body | nothing is claimed |
//! | S5 | the handler panics | 500, and the policy decides about the key |
//! | S6 | the handler outlives its lease | its token fires, and only what the store confirms is answered as success |
//! | S7 | many claims of one key come at once, to two processes | one runs, the others are told that it is in flight |
//! | S8 | a verb of the store is lost, loses its reply, or arrives twice | the same answer: nobody is kept out by itself |
//! | S9 | the store is away before the claim, or at the record | 503 and no run; or an answer in bounded time, and the record follows |
//! | S10 | a record vanishes between a claim that lost and its reading | 409, as the store said, and no run without a claim |
//! | S11 | a record is damaged, or of a newer version | 503; it is neither run nor overwritten |
//! | S12 | a store's server restarts, or loses its scripts | transparent, or 503; what its disk has is not lost |
//! | S13 | the wall clock jumps by an hour | no run of this process loses its key |
//! | S14 | another request comes under the key, whenever | 422 |
//! | S15 | another principal or other credentials come under the key | two operations; or 422, and never the other's response |
//! | S16 | a request body lies about its length, is slow, or breaks off | it is taken whole, or refused before the claim |
//! | S17 | a response is over the cap, endless, an event stream or an upgrade | the client gets all of it, once, and it never runs again |
//! | S18 | a response breaks off | the client sees that, and it is not recorded |
//! | S19 | headers repeat, bytes are no text, bodies are empty, trailers follow | the replay is identical |
//! | S20 | the handler answers with any status, before a derived key or a transaction or after one | the key is recorded, forgotten or freed by the policy's table |
//! | S21 | many duplicates come while their key runs | each is told at once: nobody waits, so nobody piles up |
//! | S22 | the service shuts down while handlers run | they are awaited, new keys are refused with 503 |
//! | S23 | settings are nonsense | no service is built with them |
//! | S24 | the handlers' pool has one connection | no deadlock: the store takes none of it |
//! | S25 | services exert back-pressure, are cloned or nested | the readied one is called, and the full path counts |
//! | S26 | a holder that was overtaken writes late | it is fenced |
//! | S27 | transactions and claims queue for the one writer | all commit, or are refused before they ran and commit later |
//! | S28 | the reply to a COMMIT is lost | the answer says what is in the database |
//! | S29 | a request kills its process each time; or fails for long | held after its last attempt; or never held |
//! | S30 | clients send and go by the thousand | runs and buffered bytes stay bounded, the rest is refused unclaimed |
//! | S31 | requests carry other credentials, signatures, or none | refused, refused, or warned of once |
//! | S32 | a transaction is ended by other hands than the layer's, or kept | neither effect nor record, and the store works on |
//! | C1 | an answer is lost after its effect: reset, closed, late, cut off, replaced by a gateway's | the same key and the same bytes again, and one effect |
//! | C2 | a retry comes while the first attempt still runs | it waits through 409 and gets that run's answer |
//! | C3 | a failure is replayed | no further attempt |
//! | C4 | the first answer is a 409 of the domain | it is returned as it is |
//! | C5 | a server says when to come back, in any format or in none | never earlier than asked; what is no time counts as nothing |
//! | C6 | the time that it asks for is beyond the cap or the deadline | the answer is returned at once |
//! | C7 | the deadline comes in a wait, while connecting, in a head or in a body | the call ends with it |
//! | C8 | the caller drops its call | nothing of it runs on, and the budget gets back what was not sent |
//! | C10 | calls of one client and of several wait, also for the ten thousandth time | each draws its own wait, and nothing overflows |
//! | C11 | a certificate is bad, a URL is none, redirects do not end | one attempt |
//! | C12 | connecting is refused, or a host has no address | it is tried again, also without a key: nothing was sent |
//! | C13 | a call without a key may have taken effect | it is not repeated |
//! | C14 | a body is a stream | it is sent once, under a key, and that is no error |
//! | C15 | the body of an error is large | its connection is used again, or dropped before the wait |
//! | C16 | the caller has set the header itself, well or badly | one value in one spelling, or an error before anything is sent |
//! | C17 | one retry is inside another | attempts do not multiply |
//! | C18 | a middleware is inside of the retry | it runs on each attempt |
//! | C19 | a handler runs again after a crash | the same keys for the same calls; those not told apart are an error before anything is sent |
//! | C20 | a redirect leads to another origin | neither the key nor the inbound one behind it gets there |
//! | E1 | the provider fails in any way, before it charges or after it | one charge for each key, one order, 201 |
//! | E2 | what is between caller and service is lost, held or refused | likewise |
//! | E3 | the service is killed anywhere on the way | likewise, once it is there again |
//! | E4 | two attempts come at once under one key, and another under another | two orders |
//! | E5 | the service is killed, and the provider does not honour keys | one order; the provider may charge twice |

#![expect(clippy::unwrap_used, reason = "in a test an unwrap is an assertion")]

mod chain;
mod checkout;
mod city;
mod client;
mod configuration;
mod counted;
mod crash;
mod given_up;
mod heartbeats;
mod identity;
mod ledger;
mod log;
mod model;
mod outage;
mod outcomes;
mod paying;
mod payments;
mod postgres;
mod postgres_servers;
mod propagation;
mod provider;
mod proxy;
mod queue;
mod redis;
mod redis_servers;
mod refusals;
mod replies;
mod request;
mod runtimes;
mod silence;
mod sockets;
mod stack;
mod streams;
mod transaction;
mod transfers;
mod untrusted;
