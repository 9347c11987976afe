//! The integration tests of this crate, in one program, so that cargo links once.

mod common;
mod metrics;
mod openapi;
mod rest;
mod security;
