//! Secrets of the engine: seeds, and the generators and keyed functions made from them.
//!
//! A host gives a [`SeedTree`] 256 bits of the operating system's entropy. From these each [`Purpose`] of each worker gets a
//! [`Seed`] of its own: an attacker who learns one of them, or everything that is made from it, knows nothing about the others. A
//! seed has one of three uses:
//!
//! - a [`Generator`] of random numbers, the stream of a cipher: the only source of random numbers that are observable outside;
//! - a [`Prf`], a keyed function: the only hash whose values, or choices that depend on them, are observable outside;
//! - keys of a faster hash, from a generator, for an index whose hashes are not observable.
//!
//! `mmb replay`, `mmb bench` and tests must give the same results on every run: [`SeedTree::repeatable`] is for them. Hosts of
//! live traffic must not use it.

#![forbid(unsafe_code)]

mod repeatable;

pub use repeatable::RepeatableRandom;

use chacha20::rand_core::{Rng, SeedableRng};
use chacha20::{ChaCha12Rng, ChaCha20Rng};
use siphasher::sip::SipHasher24;
use std::fmt;

/// The purpose of a seed. Two purposes never share a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Purpose {
    /// Hash keys of the classifier's tables.
    Classifier = 1,
    /// Hash keys of a worker's index of connections.
    ConnectionIndex = 2,
    /// Hash keys of a worker's index of datagrams whose first fragment arrived.
    FragmentIndex = 3,
    /// Hash keys of a worker's index of waiting fragments.
    HeldFragmentIndex = 4,
    /// The function that assigns connections and datagrams to workers.
    Owners = 5,
    /// Hash keys of the tables of NAT bindings.
    NatIndex = 6,
    /// NAT ports and other random choices of translations.
    NatChoices = 7,
    /// The function that assigns outside addresses to inside addresses.
    NatPairing = 8,
    /// The function that assigns a destination or server to connections.
    Balancing = 9,
    /// The function of initial sequence numbers (RFC 6528).
    SequenceNumbers = 10,
    /// Sequence numbers within a range, identifications and flow labels.
    HeaderChoices = 11,
    /// The packets that a rule with a percentage drops.
    DropShares = 12,
    /// Hash keys of the index of tuples that workers claim.
    Claims = 14,
    /// Hash keys of a worker's flow cache.
    FlowCache = 15,
    /// Hash keys of the tables of keys of limits.
    LimitKeys = 16,
    /// Hash keys of the connections that a worker's helpers expect.
    ExpectedConnections = 17,
}

/// 256 secret bits for one purpose.
#[derive(Clone)]
pub struct Seed([u8; 32]);

impl Seed {
    /// The same seed on every run, which an attacker can guess: for tests.
    pub fn repeatable(number: u64) -> Seed {
        Generator::new(Seed(widened(number))).seed()
    }
}

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seed(..)")
    }
}

/// The root of all seeds of an engine.
///
/// A seed is the beginning of a ChaCha20 stream with the root as key; purpose and worker are the number of the stream. To
/// distinguish a stream from random numbers, or to compute one from others, an attacker must break the cipher.
pub struct SeedTree([u8; 32]);

impl SeedTree {
    /// A tree of secrets. `entropy` must come from the operating system's generator, and must have no other use.
    pub fn new(entropy: [u8; 32]) -> SeedTree {
        SeedTree(entropy)
    }

    /// The same tree on every run, which an attacker can guess: for tests and for hosts without live traffic.
    pub fn repeatable(number: u64) -> SeedTree {
        SeedTree(widened(number))
    }

    /// The seed of a purpose that all workers share.
    pub fn shared(&self, purpose: Purpose) -> Seed {
        self.stream(u64::from(purpose as u32) << 32)
    }

    /// The seed of a worker for a purpose.
    pub fn of_worker(&self, purpose: Purpose, worker: usize) -> Seed {
        self.stream(u64::from(purpose as u32) << 32 | (worker as u64 + 1) & 0xffff_ffff)
    }

    fn stream(&self, number: u64) -> Seed {
        let mut cipher = ChaCha20Rng::from_seed(self.0);
        cipher.set_stream(number);
        let mut seed = [0; 32];
        cipher.fill_bytes(&mut seed);
        Seed(seed)
    }
}

impl fmt::Debug for SeedTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SeedTree(..)")
    }
}

/// Random numbers that cannot be predicted from earlier ones: a ChaCha12 stream.
#[derive(Debug)]
pub struct Generator(ChaCha12Rng);

impl Generator {
    /// The generator of a seed.
    pub fn new(Seed(seed): Seed) -> Generator {
        Generator(ChaCha12Rng::from_seed(seed))
    }

    /// 64 random bits.
    #[inline]
    pub fn word(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `bound`; 0 if `bound` is 0. The probabilities of two numbers differ by at most `bound` / 2^64.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        scale(self.word(), bound)
    }

    /// A seed for another use.
    pub fn seed(&mut self) -> Seed {
        let mut seed = [0; 32];
        self.0.fill_bytes(&mut seed);
        Seed(seed)
    }

    /// Adds fresh entropy. An attacker must know both the state before and `fresh` to know the following numbers.
    pub fn reseed(&mut self, Seed(mut fresh): Seed) {
        let Seed(own) = self.seed();
        fresh.iter_mut().zip(own).for_each(|(fresh, own)| *fresh ^= own);
        *self = Generator::new(Seed(fresh));
    }
}

/// A keyed function whose values reveal neither its key nor its other values: SipHash-2-4 (Aumasson and Bernstein, INDOCRYPT
/// 2012).
#[derive(Clone, Copy)]
pub struct Prf(SipHasher24);

impl Prf {
    /// The function of a seed.
    pub fn new(Seed(seed): Seed) -> Prf {
        let mut key = [0; 16];
        key.copy_from_slice(&seed[..16]);
        Prf(SipHasher24::new_with_key(&key))
    }

    /// The value of the function.
    #[inline]
    pub fn hash(&self, bytes: &[u8]) -> u64 {
        self.0.hash(bytes)
    }
}

impl fmt::Debug for Prf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Prf(..)")
    }
}

/// A number scaled to the range below `bound`: the high half of the product.
#[inline]
pub fn scale(number: u64, bound: u64) -> u64 {
    ((u128::from(number) * u128::from(bound)) >> 64) as u64
}

/// A number as a key; the operating system is unlikely to return such entropy.
fn widened(number: u64) -> [u8; 32] {
    let mut key = *b"this mmb has no secrets.\0\0\0\0\0\0\0\0";
    key[24..].copy_from_slice(&number.to_le_bytes());
    key
}

#[cfg(test)]
mod tests;
