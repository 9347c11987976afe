//! Vectorscan, made safe: databases, scratches, and streams in memory of our own.
//!
//! Life-cycle: a [`Database`] is compiled once and read by any thread. A [`Scratch`] is what one thread needs to scan with it. A [`Stream`]
//! lies in a part of a [`StreamMemory`] and scans with the scratch by which it was opened.
//!
//! All unsafe code of this room is in this module.
#![allow(unsafe_code)]

mod database;
mod library;
mod memory;
mod stream;

pub(crate) use database::{CompileFailure, Database, Expression};
pub(crate) use memory::StreamMemory;
pub(crate) use stream::{Scratch, Stream};
