//! Which patterns of a set are found by samples, and which by Vectorscan.
//!
//! Both take their time for each byte, so few short texts beside many long ones are better left to Vectorscan, and few long ones beside many short
//! ones sampled as if they were short. The costs below are measured (`examples/cycles.rs`), and need not be right: what they decide is
//! which way is taken, not what is found.

use super::number::number_of;
use super::samples::{Samples, SamplesBuilder};
use super::sampling::Sampling;
use super::set::{LONGEST, MAX_ALIKE, Text, TextFinder, TextSet, WholeTexts};
use memchr::memmem::Finder;
use std::collections::HashMap;

/// The shortest texts of a sampling that is worth a trial.
const SHORTEST: [usize; 5] = [4, 5, 7, 8, 12];
/// Hundredths of a cycle a byte that Vectorscan takes for at most that many patterns.
const BY_VECTORSCAN: [(usize, u32); 5] = [(1, 28), (10, 40), (100, 77), (1000, 95), (usize::MAX, 390)];
/// The same for texts of few different bytes, in traffic of these.
const BY_VECTORSCAN_SMALL_ALPHABET: [(usize, u32); 5] =
    [(1, 28), (10, 55), (100, 170), (1000, 380), (usize::MAX, 1500)];
/// The most different bytes that are few: hexadecimal digits in both cases.
const MAX_SMALL_ALPHABET: usize = 22;
/// Hundredths of a cycle that a sample takes.
const BY_SAMPLE: u32 = 420;

/// A pattern of a set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DividedPattern<'p> {
    /// Its bytes, if it is a text.
    pub(crate) text: Option<&'p [u8]>,
    pub(crate) ignores_case: bool,
    pub(crate) id: u32,
}

/// What is found how.
#[derive(Debug)]
pub(crate) struct Division {
    pub(crate) texts: Option<TextSet>,
    /// The indexes of the patterns that Vectorscan finds.
    pub(crate) others: Vec<usize>,
}

/// A text and whether letters match in either case.
type Key<'p> = (&'p [u8], bool);

impl Division {
    pub(crate) fn of(patterns: &[DividedPattern<'_>]) -> Division {
        if let [DividedPattern { text: Some(text), ignores_case: false, id }] = patterns
            && text.len() <= LONGEST
        {
            let finder = TextFinder::One(Box::new(Finder::new(text).into_owned()));
            return Division {
                texts: Some(TextSet::of(&[((text, false), vec![*id])], finder)),
                others: Vec::new(),
            };
        }
        let vectorscan = if different_bytes(patterns) <= MAX_SMALL_ALPHABET {
            &BY_VECTORSCAN_SMALL_ALPHABET
        } else {
            &BY_VECTORSCAN
        };
        let by_vectorscan = |others| cost_of_others(vectorscan, others);
        let without = Division { texts: None, others: (0..patterns.len()).collect() };
        let mut best = (by_vectorscan(patterns.len()), without);
        for shortest in SHORTEST {
            let others = patterns.iter().filter(|pattern| eligible(pattern, shortest).is_none()).count();
            if cost_of(Sampling::of(shortest)) + by_vectorscan(others) <= best.0 {
                let division = Division::by_samples(patterns, shortest);
                let by_samples = division.texts.as_ref().and_then(TextSet::samples);
                let by_samples = by_samples.map_or(0, |samples| cost_of(samples.sampling));
                let cost = by_samples + by_vectorscan(division.others.len());
                if cost <= best.0 {
                    best = (cost, division);
                }
            }
        }
        best.1
    }

    /// Texts of at least that many bytes by samples.
    pub(super) fn by_samples(patterns: &[DividedPattern<'_>], shortest: usize) -> Division {
        let lengths = patterns.iter().filter_map(|pattern| eligible(pattern, shortest)).map(<[u8]>::len);
        let mut builder = SamplesBuilder::new(Sampling::of(lengths.min().unwrap_or(shortest)));
        let mut numbers: HashMap<Key<'_>, Option<usize>> = HashMap::new();
        let mut alike: HashMap<u64, Vec<u32>> = HashMap::new();
        let (mut texts, mut others): (Vec<(Key<'_>, Vec<u32>)>, _) = (Vec::new(), Vec::new());
        for (index, pattern) in patterns.iter().enumerate() {
            let Some(text) = eligible(pattern, shortest) else {
                others.push(index);
                continue;
            };
            let key = (text, pattern.ignores_case);
            let number = *numbers.entry(key).or_insert_with(|| {
                let alike = alike.entry(number_of(text)).or_default();
                if alike.len() == MAX_ALIKE || !builder.add(text) {
                    return None;
                }
                alike.push(texts.len() as u32);
                texts.push((key, Vec::new()));
                Some(texts.len() - 1)
            });
            match number {
                Some(number) => texts[number].1.push(pattern.id),
                None => others.push(index),
            }
        }
        alike.retain(|_, texts| !texts.is_empty());
        let finder = builder.build().zip(WholeTexts::new(alike));
        let finder = finder.map(|(samples, whole)| TextFinder::Samples(samples, whole));
        match finder.filter(|_| !texts.is_empty()) {
            Some(finder) => Division { texts: Some(TextSet::of(&texts, finder)), others },
            None => Division { texts: None, others: (0..patterns.len()).collect() },
        }
    }
}

/// The bytes of a pattern, if it is a text that can be found by samples.
fn eligible<'p>(pattern: &DividedPattern<'p>, shortest: usize) -> Option<&'p [u8]> {
    pattern.text.filter(|text| (shortest..=LONGEST).contains(&text.len()))
}

/// How many different bytes the texts have.
fn different_bytes(patterns: &[DividedPattern<'_>]) -> usize {
    let mut has = [false; 256];
    patterns
        .iter()
        .filter_map(|pattern| pattern.text)
        .flatten()
        .for_each(|byte| has[usize::from(*byte)] = true);
    has.iter().filter(|has| **has).count()
}

fn cost_of(sampling: Sampling) -> u32 {
    BY_SAMPLE / sampling.step as u32
}

fn cost_of_others(costs: &[(usize, u32)], others: usize) -> u32 {
    let cost = costs.iter().find(|(max, _)| others <= *max).map_or(0, |(_, cost)| *cost);
    if others == 0 { 0 } else { cost }
}

impl TextSet {
    /// Texts with their ids.
    fn of(texts: &[(Key<'_>, Vec<u32>)], finder: TextFinder) -> TextSet {
        let longest = texts.iter().map(|((text, _), _)| text.len()).max().unwrap_or(1);
        let mut set = TextSet { texts: Vec::new(), bytes: Vec::new(), ids: Vec::new(), finder, longest };
        for ((text, ignores_case), ids) in texts {
            let (byte, id) = (set.bytes.len() as u32, set.ids.len() as u32);
            set.bytes.extend_from_slice(text);
            set.ids.extend_from_slice(ids);
            set.texts.push(Text {
                bytes: byte..set.bytes.len() as u32,
                ids: id..set.ids.len() as u32,
                ignores_case: *ignores_case,
            });
        }
        set
    }

    fn samples(&self) -> Option<&Samples> {
        match &self.finder {
            TextFinder::One(_) => None,
            TextFinder::Samples(samples, _) => Some(samples),
        }
    }
}
