//! The integration tests of this crate, in one program, so that cargo links once.

#![recursion_limit = "256"]

mod bench;
mod client;
mod client_files;
mod common;
mod golden;
mod man;
mod replay;
mod service;
mod shell;
mod talk;
