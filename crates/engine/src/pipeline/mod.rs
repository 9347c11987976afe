//! The pipeline: the stages of a vector, from parsing to forwarding.
//!
//! A [`Pipeline`] belongs to one worker. [`Pipeline::run`] takes a vector through all stages; [`Pipeline::run_to_tickets`] leaves rewriting to
//! [`Pipeline::rewrite_by_tickets`], for hosts that rewrite in a stage of their own.

mod blockers;
mod forward;
mod offload;
mod resolver;
mod rewrite;
mod run;
mod state;
mod tickets;
mod trace;
mod tracked;
mod work;

pub(crate) use state::Pipeline;
pub use tickets::RewriteTicket;
pub use trace::{PacketTrace, TracedConnection};
