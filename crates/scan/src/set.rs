//! Sets of patterns.

use crate::error::{PatternError, PatternRefusal};
use crate::ffi::{CompileFailure, Database, Expression};
use crate::job::{CompileJob, CompiledJob, DatabaseCompiler, InProcess, JobFailure, JobRefusal};
use crate::pattern::{Pattern, PatternKind};
use crate::pool::Pool;
use crate::texts::{DividedPattern, Division, TextSet};
use crate::translate::{Translation, escape, translate};
use crate::{MAX_PATTERNS, MAX_REGEXES, MAX_SET_POSITIONS, MAX_STATE_BYTES};
use siphasher::sip128::{Hasher128, SipHasher};
use std::fmt;
use std::hash::Hasher;
use std::sync::Arc;

/// Patterns that are found together in one pass. A clone is the same set, and costs nothing.
#[derive(Clone)]
pub struct PatternSet {
    compiled: Arc<Compiled>,
}

struct Compiled {
    texts: Option<TextSet>,
    /// What finds the other patterns, if there are some.
    database: Option<Arc<Database>>,
    digest: SetDigest,
    len: usize,
}

/// A digest of the patterns of a set: equal for equal lists, different for others but for chance. It is no secret, and not safe against those
/// who look for two lists of one digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SetDigest(pub u128);

impl PatternSet {
    /// Compiles patterns on the calling thread. 10,000 texts take a moment; many regexes may take minutes.
    ///
    /// # Errors
    /// A pattern is refused, they are too many or too large, or the matcher does not run here.
    pub fn compile(patterns: &[Pattern]) -> Result<PatternSet, PatternError> {
        PatternSet::compile_by(patterns, &InProcess)
    }

    /// As [`PatternSet::compile`], but `compiler` compiles the part of the patterns that Vectorscan searches for.
    ///
    /// # Errors
    /// As [`PatternSet::compile`], and the errors of the compiler.
    pub fn compile_by(
        patterns: &[Pattern],
        compiler: &dyn DatabaseCompiler,
    ) -> Result<PatternSet, PatternError> {
        match patterns.len() {
            0 => return Err(PatternError::NoPatterns),
            1..=MAX_PATTERNS => {}
            many => return Err(PatternError::TooManyPatterns(many)),
        }
        let translations = translations(patterns)?;
        let Division { texts, others } = Division::of(&divided(patterns, &translations));
        let mut compiled = Compiled { texts, database: None, digest: digest(patterns), len: patterns.len() };
        if !others.is_empty() {
            let job = CompileJob { expressions: expressions(patterns, translations, &others)? };
            let CompiledJob(database) =
                compiler.compile(&job).map_err(|failure| refusal(patterns, &others, failure))?;
            compiled.database = Some(database);
        }
        match compiled.stream_size() {
            0..=MAX_STATE_BYTES => Ok(PatternSet { compiled: Arc::new(compiled) }),
            large => Err(PatternError::StateTooLarge(large)),
        }
    }

    /// The digest that a set of these patterns has.
    pub fn digest_of(patterns: &[Pattern]) -> SetDigest {
        digest(patterns)
    }

    /// The digest of its patterns, their order and ids included.
    pub fn digest(&self) -> SetDigest {
        self.compiled.digest
    }

    /// Number of patterns.
    #[expect(clippy::len_without_is_empty, reason = "a set is never empty")]
    pub fn len(&self) -> usize {
        self.compiled.len
    }

    /// Bytes of a pool that each open stream takes.
    pub fn state_bytes(&self) -> usize {
        Pool::slot_bytes(self.compiled.stream_size())
    }

    /// Bytes of a pool that has room for that many open streams of this set.
    pub fn pool_bytes(&self, states: usize) -> usize {
        Pool::bytes_for(states, self.compiled.stream_size())
    }

    /// The texts that are found without Vectorscan.
    #[inline]
    pub(crate) fn texts(&self) -> Option<&TextSet> {
        self.compiled.texts.as_ref()
    }

    pub(crate) fn database(&self) -> Option<&Arc<Database>> {
        self.compiled.database.as_ref()
    }

    /// Whether other clones of this set exist.
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.compiled) > 1
    }

    /// Bytes of the library's database.
    pub(crate) fn database_bytes(&self) -> usize {
        self.compiled.database.as_ref().map_or(0, |database| database.bytes())
    }

    /// Whether it is the same set, not only an equal one.
    pub fn is(&self, other: &PatternSet) -> bool {
        Arc::ptr_eq(&self.compiled, &other.compiled)
    }
}

impl Compiled {
    /// Bytes of the state of a stream.
    fn stream_size(&self) -> usize {
        let library = self.database.as_ref().map_or(0, |database| database.stream_size());
        library + self.texts.as_ref().map_or(0, TextSet::state_bytes)
    }
}

impl fmt::Debug for PatternSet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Compiled { digest, len, .. } = &*self.compiled;
        formatter.debug_struct("PatternSet").field("len", len).field("digest", digest).finish_non_exhaustive()
    }
}

fn digest(patterns: &[Pattern]) -> SetDigest {
    let mut hasher = SipHasher::new();
    hasher.write_u64(patterns.len() as u64);
    patterns.iter().for_each(|pattern| pattern.digest(&mut hasher));
    SetDigest(hasher.finish128().as_u128())
}

/// The patterns in the library's syntax. Checks the limits of each and of all.
fn translations(patterns: &[Pattern]) -> Result<Vec<Translation>, PatternError> {
    let mut translations = Vec::with_capacity(patterns.len());
    let (mut regexes, mut positions) = (0, 0);
    for (index, pattern) in patterns.iter().enumerate() {
        let translation = match &pattern.kind {
            PatternKind::Text(bytes) => escape(bytes, pattern.ignores_case),
            PatternKind::Regex(source) => translate(source, pattern.ignores_case),
        };
        let translation = translation.map_err(|refusal| PatternError::Refused { index, refusal })?;
        regexes += usize::from(translation.text.is_none());
        positions += translation.positions;
        translations.push(translation);
    }
    if regexes > MAX_REGEXES {
        return Err(PatternError::TooManyRegexes(regexes));
    }
    if positions > MAX_SET_POSITIONS {
        return Err(PatternError::TooLarge(positions));
    }
    Ok(translations)
}

fn divided<'p>(patterns: &[Pattern], translations: &'p [Translation]) -> Vec<DividedPattern<'p>> {
    let of = |(pattern, translation): (&Pattern, &'p Translation)| DividedPattern {
        text: translation.text.as_deref(),
        ignores_case: translation.ignores_case,
        id: pattern.id,
    };
    patterns.iter().zip(translations).map(of).collect()
}

/// What the library compiles: the patterns with those indexes. Texts are regexes too: its compiler of texts is no faster, and takes none that
/// begins with a zero byte.
fn expressions(
    patterns: &[Pattern],
    translations: Vec<Translation>,
    indexes: &[usize],
) -> Result<Vec<Expression>, PatternError> {
    let mut indexes = indexes.iter().copied().peekable();
    let mut expressions = Vec::with_capacity(indexes.len());
    for (index, (pattern, translation)) in patterns.iter().zip(translations).enumerate() {
        if indexes.next_if_eq(&index).is_some() {
            let zero = |_| PatternRefusal::Other("a zero byte".to_owned());
            let source = std::ffi::CString::new(translation.source).map_err(zero);
            let source = source.map_err(|refusal| PatternError::Refused { index, refusal })?;
            expressions.push(Expression { source, ignores_case: translation.ignores_case, id: pattern.id });
        }
    }
    Ok(expressions)
}

/// Why patterns are refused whose `others`, by their places, are not compiled.
fn refusal(patterns: &[Pattern], others: &[usize], failure: JobFailure) -> PatternError {
    let place = |expression: usize| others.get(expression).copied();
    match failure {
        JobFailure::OverBudget { budget, costliest } => {
            let index = costliest.and_then(place);
            let pattern = index.and_then(|index| patterns.get(index)).map(Pattern::shown);
            PatternError::OverBudget { budget, index, pattern }
        }
        JobFailure::Unfinished(reason) => PatternError::Unfinished(reason),
        JobFailure::Refused(JobRefusal(failure)) => match failure {
            CompileFailure::NoLibrary => PatternError::NoLibrary,
            CompileFailure::UnsupportedProcessor => PatternError::UnsupportedProcessor,
            CompileFailure::NoMemory => PatternError::NoMemory,
            CompileFailure::Refused { index, message } => match index.and_then(place) {
                None => PatternError::Other(message),
                Some(index) => {
                    let refusal = match message.as_str() {
                        message if message.contains("anchors not supported") => PatternRefusal::InnerAnchor,
                        message if message.contains("too large") => PatternRefusal::TooComplex,
                        _ => PatternRefusal::Other(message),
                    };
                    PatternError::Refused { index, refusal }
                }
            },
        },
    }
}
