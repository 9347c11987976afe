//! What must hold of connections whatever comes: random scripts of packets, time, policies, requests and restarts.
//!
//! `PROPTEST_CASES` raises the number of scripts.

use mmb_differential::connections::{STEP, connections};
use proptest::prelude::*;

/// The number of that policy.
const STATES: u8 = 12;

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(256),
        failure_persistence: None,
        max_shrink_iters: 500,
        ..ProptestConfig::default()
    })]

    #[test]
    fn connections_keep_their_invariants(
        first in any::<u8>(),
        steps in proptest::collection::vec(any::<[u8; STEP]>(), 0..50),
    ) {
        connections(&[&[first], &steps.concat()[..]].concat()).map_err(TestCaseError::fail)?;
    }

    /// The scripts' policy whose rules ask for `ct`.
    #[test]
    fn rules_see_packets_as_the_connections_say(
        workers in 0u8..2,
        steps in proptest::collection::vec(any::<[u8; STEP]>(), 0..30),
    ) {
        connections(&[&[STATES << 1 | workers], &steps.concat()[..]].concat()).map_err(TestCaseError::fail)?;
    }
}
