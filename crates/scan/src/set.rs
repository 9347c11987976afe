//! Sets of patterns.

use crate::error::{PatternError, PatternRefusal};
use crate::ffi::{CompileFailure, Database, Expression};
use crate::pattern::{Pattern, PatternKind};
use crate::pool::Pool;
use crate::translate::{escape, translate};
use crate::{MOST_PATTERNS, MOST_REGEXES, MOST_SET_POSITIONS, MOST_STATE};
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
    database: Arc<Database>,
    digest: SetDigest,
    len: usize,
}

/// A digest of the patterns of a set: equal for equal lists, different for others but for chance. It is no secret, and not safe against those
/// who look for two lists of one digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SetDigest(pub u128);

impl PatternSet {
    /// Compiles patterns. Takes a quarter of a second for 10,000 texts, and some seconds at most: see the limits of this crate.
    ///
    /// # Errors
    /// A pattern is refused, they are too many or too large, or the matcher does not run here.
    pub fn compile(patterns: &[Pattern]) -> Result<PatternSet, PatternError> {
        match patterns.len() {
            0 => return Err(PatternError::NoPatterns),
            1..=MOST_PATTERNS => {}
            many => return Err(PatternError::TooManyPatterns(many)),
        }
        let expressions = expressions(patterns)?;
        let database = Database::compile(&expressions).map_err(PatternError::from)?;
        if database.stream_size() > MOST_STATE {
            return Err(PatternError::StateTooLarge(database.stream_size()));
        }
        let compiled =
            Compiled { database: Arc::new(database), digest: digest(patterns), len: patterns.len() };
        Ok(PatternSet { compiled: Arc::new(compiled) })
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
        Pool::slot_bytes(self.compiled.database.stream_size())
    }

    /// Bytes of a pool that has room for that many open streams of this set.
    pub fn pool_bytes(&self, states: usize) -> usize {
        Pool::bytes_for(states, self.compiled.database.stream_size())
    }

    pub(crate) fn database(&self) -> &Arc<Database> {
        &self.compiled.database
    }

    /// Whether it is the same set, not only an equal one.
    pub(crate) fn is(&self, other: &PatternSet) -> bool {
        Arc::ptr_eq(&self.compiled, &other.compiled)
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

/// What the library compiles. Texts are regexes too: its compiler of texts is no faster, and takes none that begins with a zero byte.
fn expressions(patterns: &[Pattern]) -> Result<Vec<Expression>, PatternError> {
    let mut expressions = Vec::with_capacity(patterns.len());
    let (mut regexes, mut positions) = (0, 0);
    for (index, pattern) in patterns.iter().enumerate() {
        let refused = |refusal| PatternError::Refused { index, refusal };
        let expression = match &pattern.kind {
            PatternKind::Text(bytes) => escape(bytes, pattern.ignores_case).map_err(refused)?,
            PatternKind::Regex(source) => translate(source, pattern.ignores_case).map_err(refused)?,
        };
        regexes += usize::from(expression.positions > 0);
        positions += expression.positions;
        let source = std::ffi::CString::new(expression.source)
            .map_err(|_| refused(PatternRefusal::Other("a zero byte".to_owned())))?;
        expressions.push(Expression { source, ignores_case: expression.ignores_case, id: pattern.id });
    }
    if regexes > MOST_REGEXES {
        return Err(PatternError::TooManyRegexes(regexes));
    }
    if positions > MOST_SET_POSITIONS {
        return Err(PatternError::TooLarge(positions));
    }
    Ok(expressions)
}

impl From<CompileFailure> for PatternError {
    fn from(failure: CompileFailure) -> PatternError {
        match failure {
            CompileFailure::NoLibrary => PatternError::NoLibrary,
            CompileFailure::UnsupportedProcessor => PatternError::UnsupportedProcessor,
            CompileFailure::NoMemory => PatternError::NoMemory,
            CompileFailure::Refused { index: None, message } => PatternError::Other(message),
            CompileFailure::Refused { index: Some(index), message } => {
                let refusal = match message.as_str() {
                    message if message.contains("anchors not supported") => PatternRefusal::InnerAnchor,
                    message if message.contains("too large") => PatternRefusal::TooComplex,
                    _ => PatternRefusal::Other(message),
                };
                PatternError::Refused { index, refusal }
            }
        }
    }
}
