//! The pipeline: the stages of a vector, from parsing to forwarding.
//!
//! A [`Pipeline`] belongs to one worker. [`Pipeline::run`] processes a vector in all stages. For hosts that
//! rewrite in a stage of their own, [`Pipeline::run_to_tickets`] leaves rewriting to
//! [`Pipeline::rewrite_by_tickets`].

mod answer;
mod forward;
mod limits;
mod log;
mod matched;
mod offload;
mod resolver;
mod rewrite;
mod run;
mod search;
mod state;
mod tap;
mod tapping;
mod tickets;
mod trace;
mod tracing;
mod tracked;
mod work;

pub(crate) use state::Pipeline;
pub use tap::{MAX_TAPPED_BYTES, TapOptions, TappedBytes, TappedPacket};
pub(crate) use tap::{TapQueue, WorkerTap};
pub use tickets::RewriteTicket;
pub use trace::{PacketTrace, TracedConnection};
