use super::*;
use proptest::prelude::*;
use std::collections::HashSet;

const PURPOSES: [Purpose; 12] = [
    Purpose::Classifier,
    Purpose::ConnectionIndex,
    Purpose::FragmentIndex,
    Purpose::HeldFragmentIndex,
    Purpose::Owners,
    Purpose::NatIndex,
    Purpose::NatChoices,
    Purpose::NatPairing,
    Purpose::Balancing,
    Purpose::SequenceNumbers,
    Purpose::HeaderChoices,
    Purpose::DropShares,
];

/// Number of bits in which two seeds differ.
fn distance(Seed(one): &Seed, Seed(other): &Seed) -> u32 {
    one.iter().zip(other).map(|(one, other)| (one ^ other).count_ones()).sum()
}

#[test]
fn every_purpose_of_every_worker_has_a_seed_of_its_own() {
    let tree = SeedTree::new([7; 32]);
    let mut seeds: Vec<Seed> = PURPOSES.iter().map(|purpose| tree.shared(*purpose)).collect();
    for worker in 0..16 {
        seeds.extend(PURPOSES.iter().map(|purpose| tree.of_worker(*purpose, worker)));
    }
    for (at, one) in seeds.iter().enumerate() {
        // Half of 256 bits differ on average; the probability of as few as 64 is 2^-48.
        assert!(seeds[..at].iter().all(|other| distance(one, other) > 64));
    }
}

#[test]
fn roots_that_differ_in_a_bit_have_nothing_in_common() {
    for bit in 0..256 {
        let mut entropy = [7; 32];
        entropy[bit / 8] ^= 1 << (bit % 8);
        let seeds =
            [SeedTree::new([7; 32]), SeedTree::new(entropy)].map(|tree| tree.shared(Purpose::NatChoices));
        assert!(distance(&seeds[0], &seeds[1]) > 64, "bit {bit}");
    }
}

/// ChaCha20 with a key of zeros (draft-agl-tls-chacha20poly1305-04, section 7); the stream's number is the nonce, little-endian.
#[test]
fn seeds_are_what_the_cipher_gives() {
    let vectors = [
        (0, "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"),
        (1, "ef3fdfd6c61578fbf5cf35bd3dd33b8009631634d21e42ac33960bd138e50d32"),
        (1 << 56, "de9cba7bf3d69ef5e786dc63973f653a0b49e015adbff7134fcb7df137821031"),
    ];
    for (number, expected) in vectors {
        let Seed(seed) = SeedTree::new([0; 32]).stream(number);
        assert_eq!(seed.map(|byte| format!("{byte:02x}")).concat(), expected);
    }
}

/// The vectors of the paper's appendix: the key is 00 01 .. 0f.
#[test]
fn keyed_functions_are_siphash_2_4() {
    let prf = Prf::new(Seed(std::array::from_fn(|at| at as u8)));
    let message: [u8; 15] = std::array::from_fn(|at| at as u8);
    assert_eq!(prf.hash(&message), 0xa129_ca61_49be_45e5);
}

#[test]
fn nothing_prints_a_secret() {
    let (seed, tree) = (Seed([0xab; 32]), SeedTree::new([0xab; 32]));
    let printed =
        format!("{seed:?} {tree:?} {:?} {:?}", Prf::new(seed.clone()), Generator::new(seed.clone()));
    assert!(!printed.contains("171") && !printed.contains("ab, "), "{printed}");
}

#[test]
fn fresh_entropy_and_the_old_state_both_count() {
    let after = |state: u64, fresh: u64| {
        let mut generator = Generator::new(Seed::repeatable(state));
        generator.reseed(Seed::repeatable(fresh));
        generator.word()
    };
    let words: HashSet<u64> = [after(1, 1), after(1, 2), after(2, 1), after(2, 2)].into();
    assert_eq!(words.len(), 4);
    assert_eq!(after(1, 2), after(1, 2));
}

#[test]
fn repeatable_trees_repeat() {
    let word = |number| Generator::new(SeedTree::repeatable(number).shared(Purpose::NatChoices)).word();
    assert_eq!(word(1), word(1));
    assert_ne!(word(1), word(2));
}

/// SplitMix64 adds a constant to its state and then mixes it reversibly: two outputs, inverted, differ by that constant. An
/// attacker could find the process's seed in this way from observed sequence numbers.
#[test]
fn outputs_are_not_those_of_a_generator_that_can_be_undone() {
    let undone = |output: u64| {
        let unshift = |number: u64, by: u32| {
            let mut found = number;
            for _ in 0..64 / by {
                found = number ^ found >> by;
            }
            found
        };
        let second = unshift(output, 31).wrapping_mul(0x3196_42b2_d24d_8ec3);
        let first = unshift(second, 27).wrapping_mul(0x96de_1b17_3f11_9089);
        unshift(first, 30)
    };
    // The attack works on the generator that it targets.
    let splitmix = |state: u64| {
        let one = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let two = (one ^ one >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        two ^ two >> 31
    };
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    assert_eq!(undone(splitmix(99 + STEP)).wrapping_sub(undone(splitmix(99))), STEP);
    let mut generator = Generator::new(Seed::repeatable(99));
    let outputs: Vec<u64> = (0..10_000).map(|_| undone(generator.word())).collect();
    assert!(outputs.windows(2).all(|pair| pair[1].wrapping_sub(pair[0]) != STEP));
}

proptest! {
    #[test]
    fn numbers_stay_below_their_bound(number: u64, bound: u64) {
        prop_assert!(scale(number, bound) < bound.max(1));
    }
}
