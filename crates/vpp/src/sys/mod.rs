//! The room that talks to VPP: all unsafe code of the plugin except its allocator, all of its C.
//!
//! * [`entry`]: the functions that VPP calls. It alone names rooms above this one.
//! * [`main_thread`]: what VPP's main thread may ask of VPP. `shim.c` has VPP's macros and inline functions for both.
//! * [`node`], [`thread`], [`buffer`], [`chain`]: a node's call, its thread, its buffers, packets of several buffers. `buffers.c` registers the nodes.
//! * [`errors`], [`trace`], [`contain`], [`tsc`]: error counters, traces, panics inside a node, the cycle counter.
//!
//! Safe code in other rooms relies on this: a [`BufferIndex`], [`Buffer`], [`NodeCall`] or [`VppThread`] is made here only, from what VPP
//! passed to a node, and is used during that call only. The types cannot say that a buffer is no longer the node's once it is sent on;
//! `nodes` sends each vector on as the last thing it does with it. What both C and Rust lay out has assertions on both sides.

mod buffer;
mod chain;
mod contain;
mod entry;
mod errors;
mod main_thread;
mod node;
mod thread;
mod trace;
mod tsc;

pub(crate) use buffer::{AHEAD, Buffer, BufferIndex, BufferMetadata, BufferPool};
pub(crate) use chain::{ChainCopies, ChainView, put_back};
pub(crate) use errors::NodeError;
pub(crate) use main_thread::{CliClientState, LogLevel, MainThread, VppCommand, VppInterface, step_aside};
pub(crate) use node::{DROP, NextFeature, NodeCall, REWRITE};
pub(crate) use thread::VppThread;
pub(crate) use trace::{NodeTrace, TracedVerdict};
pub(crate) use tsc::NodeTsc;

// The registration of the plugin. The build script writes it, because the macro takes the version as a literal only.
include!(concat!(env!("OUT_DIR"), "/registration.rs"));
