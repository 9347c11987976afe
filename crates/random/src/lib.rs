//! Secrets of the engine: where seeds come from, and what is made from them.
//!
//! A host gives a [`SeedTree`] 256 bits of the operating system's entropy. From these each [`Purpose`] of each worker gets a [`Seed`]
//! of its own: who learns one of them, or all that is made from it, knows nothing about the others. A seed becomes one of three things:
//!
//! - a [`Generator`] of random numbers, a cipher's stream: the only source of random numbers that somebody outside may see;
//! - a [`Prf`], a keyed function: the only hash whose values, or choices made by them, somebody outside may see;
//! - keys of a faster hash, by a generator, for an index whose hashes nobody sees.
//!
//! `mmb replay`, `mmb bench` and tests are to do the same on every run: [`SeedTree::repeatable`] is for them. Hosts of live traffic
//! have no use for it.

#![forbid(unsafe_code)]

use chacha20::rand_core::{Rng, SeedableRng};
use chacha20::{ChaCha12Rng, ChaCha20Rng};
use siphasher::sip::SipHasher24;
use std::fmt;

/// What a seed is for. Two purposes never share a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Purpose {
    /// Hash keys of the classifier's tables.
    Classifier = 1,
    /// Hash keys of a worker's index of connections.
    ConnectionIndex = 2,
    /// Hash keys of a worker's index of datagrams whose first fragment was seen.
    FragmentIndex = 3,
    /// Hash keys of a worker's index of fragments that wait.
    HeldFragmentIndex = 4,
    /// The function that gives connections and datagrams to workers.
    Owners = 5,
    /// Hash keys of the tables of NAT bindings.
    NatIndex = 6,
    /// NAT ports and other random choices of translations.
    NatChoices = 7,
    /// The function that gives inside addresses their outside address.
    NatPairing = 8,
    /// The function that gives connections their destination or server.
    Balancing = 9,
    /// The function that initial sequence numbers are made by (RFC 6528).
    SequenceNumbers = 10,
    /// Sequence numbers within a range, identifications and flow labels.
    HeaderChoices = 11,
    /// Which packets a rule drops that drops a share of them.
    DropShares = 12,
}

/// 256 secret bits for one purpose.
#[derive(Clone)]
pub struct Seed([u8; 32]);

impl Seed {
    /// The same seed on every run, which anybody can guess: for tests.
    pub fn repeatable(number: u64) -> Seed {
        Generator::new(Seed(widened(number))).seed()
    }
}

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seed(..)")
    }
}

/// The root from which all seeds of an engine come.
///
/// A seed is the beginning of a ChaCha20 stream under the root as its key; purpose and worker are the stream's number. To tell one
/// stream from a random one, or to find one from others, is to break the cipher.
pub struct SeedTree([u8; 32]);

impl SeedTree {
    /// A tree of secrets. `entropy` must come from the operating system's generator, and be used for nothing else.
    pub fn new(entropy: [u8; 32]) -> SeedTree {
        SeedTree(entropy)
    }

    /// The same tree on every run, which anybody can guess: for tests and for hosts that no live traffic goes through.
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

/// Random numbers that cannot be told from others seen before: a ChaCha12 stream.
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

    /// A number below `bound`; 0 if that is 0. No number is likelier than another by more than `bound` / 2^64.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        scale(self.word(), bound)
    }

    /// A seed for something else.
    pub fn seed(&mut self) -> Seed {
        let mut seed = [0; 32];
        self.0.fill_bytes(&mut seed);
        Seed(seed)
    }

    /// Goes on with fresh entropy. Neither who knew the state before nor who knows only `fresh` knows what comes.
    pub fn reseed(&mut self, Seed(mut fresh): Seed) {
        let Seed(own) = self.seed();
        fresh.iter_mut().zip(own).for_each(|(fresh, own)| *fresh ^= own);
        *self = Generator::new(Seed(fresh));
    }
}

/// A keyed function whose values tell nothing about its key or its other values: SipHash-2-4 (Aumasson and Bernstein, INDOCRYPT 2012).
#[derive(Clone, Copy)]
pub struct Prf(SipHasher24);

impl Prf {
    /// The function of a seed.
    pub fn new(Seed(seed): Seed) -> Prf {
        let mut key = [0; 16];
        key.copy_from_slice(&seed[..16]);
        Prf(SipHasher24::new_with_key(&key))
    }

    /// The function's value.
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

/// A number brought below `bound`: the high half of the product.
#[inline]
pub fn scale(number: u64, bound: u64) -> u64 {
    ((u128::from(number) * u128::from(bound)) >> 64) as u64
}

/// A number as a key that no entropy is likely to give.
fn widened(number: u64) -> [u8; 32] {
    let mut key = *b"this mmb has no secrets.\0\0\0\0\0\0\0\0";
    key[24..].copy_from_slice(&number.to_le_bytes());
    key
}

#[cfg(test)]
mod tests;
