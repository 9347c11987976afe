//! The integration tests of this crate, in one program, so that cargo links once.

mod corpora;
mod http_seeds;
mod offload;
mod oracle;
mod oracle_cases;
mod oracle_plan;
mod taps;
mod tracked;
