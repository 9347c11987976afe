//! The integration tests of this crate, in one program, so that cargo links once.

mod adopted;
mod ahead;
mod clients;
mod commands;
mod common;
mod compiling;
mod confirm;
mod connection_answers;
mod counters;
mod documents;
mod history;
mod memory;
mod offload;
mod packet_answers;
mod servers;
mod state;
