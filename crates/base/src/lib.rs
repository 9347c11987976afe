//! Shared parts of the packet path: the size of a vector, SIMD levels, prefetches, ids and slabs, the persistent array, locks.
//!
//! [`prefetch()`], [`Block`], [`Chunks`], [`SharedSlice`] and [`simd`] are the only unsafe code that the packet path needs besides hand-written
//! kernels: a prefetch has no effect that a program can observe, a block is a vector that cannot grow, chunks are blocks that are read with one
//! check of bounds, a shared slice is an `Arc` in huge pages, and a kernel runs at a level only where the processor has its instructions. The control side uses
//! one system call on the descriptors of the process ([`set_close_on_exec`]).

mod chunks;
mod descriptors;
mod huge_pages;
mod huge_pool;
mod id;
mod lock;
pub mod persistent_vec;
mod prefetch;
mod sharded_index;
mod shared_slice;
pub mod simd;
mod slab;
mod supply;
mod zeroed;

pub use chunks::Chunks;
pub use descriptors::set_close_on_exec;
pub use huge_pages::Block;
pub use huge_pool::{PoolUse, pool_use};
pub use id::Id;
pub use lock::{lock, lock_soon, read, write};
pub use persistent_vec::PersistentVec;
pub use prefetch::{prefetch, prefetch_all};
pub use sharded_index::ShardedIndex;
pub use shared_slice::SharedSlice;
pub use slab::{IdPool, Slab, SlabStorage};
pub use supply::start_supplier;
pub use zeroed::{ZeroedAtomics, ZeroedWords};

/// The most packets of one vector. Packets are numbered in a byte.
pub const VECTOR: usize = 1 << u8::BITS;
