//! Patterns of streams: what a rule searches for in the bytes of a connection, and the lists of patterns that `patterns` reads from files.
//!
//! The checker makes these values, so that a text is not empty and a regex is one that [`Regex`] allows. Reading a file is the host's matter: it
//! has the bytes parsed by [`PatternList::parse`], and the policy keeps the content.

use std::fmt;
use std::sync::Arc;

/// One pattern of a constraint on a stream, or a list of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PatternItem {
    /// These bytes; at least one.
    Text(Vec<u8>),
    /// What a regex matches.
    Regex(Regex),
    /// The texts of a list of the policy, by its name.
    List(String),
}

/// A regex over bytes: without look-around and back-references, and never matching the empty string.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Regex {
    /// What stood between the slashes, with `\/` as `/`; at most [`Regex::MAX_LEN`] bytes.
    pub source: String,
    /// `/…/i`: letters of ASCII match in either case.
    pub ignores_case: bool,
}

impl Regex {
    /// The most bytes of a regex.
    pub const MAX_LEN: usize = 4096;
}

/// The content of a file of patterns.
#[derive(Clone, Debug)]
pub struct PatternList {
    /// The file's name, as it is opened again.
    pub file: String,
    /// The patterns in the order of the file, none empty; at least one.
    pub patterns: Arc<[Vec<u8>]>,
    /// A digest of the patterns: equal for equal patterns, and different for others but by chance.
    pub digest: u64,
}

/// The reason why the content of a file is no list of patterns.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternListError {
    /// More than [`PatternList::MAX_BYTES`].
    #[error("the file has more than 64 MiB; split it into several lists")]
    TooLong,
    /// More than [`PatternList::MAX_LINES`] lines.
    #[error("line {}: more than 1000000 lines; split the file into several lists", PatternList::MAX_LINES + 1)]
    TooManyLines,
    /// A line has more than [`PatternList::MAX_PATTERN_BYTES`] bytes.
    #[error("line {0}: the pattern has more than 2048 bytes; its first 2048 may do")]
    LineTooLong(usize),
    /// No pattern is left without comments and empty lines.
    #[error("the file has no patterns; write one a line")]
    Empty,
}

impl PatternList {
    /// The most bytes of a file.
    pub const MAX_BYTES: usize = 64 << 20;
    /// The most lines of a file.
    pub const MAX_LINES: usize = 1_000_000;
    /// The most bytes of a pattern.
    pub const MAX_PATTERN_BYTES: usize = 2048;

    /// The list of these patterns.
    pub fn new(file: String, patterns: Vec<Vec<u8>>) -> PatternList {
        let digest = digest(&patterns);
        PatternList { file, patterns: patterns.into(), digest }
    }

    /// The patterns in the content of a file: one a line, its bytes as they are. A line ends with LF or CRLF. Empty lines and lines that begin with
    /// `#` are left out.
    ///
    /// # Errors
    /// The content is too long, or there is no pattern in it.
    pub fn parse(file: String, content: &[u8]) -> Result<PatternList, PatternListError> {
        if content.len() > PatternList::MAX_BYTES {
            return Err(PatternListError::TooLong);
        }
        let mut patterns = Vec::new();
        let content = content.strip_suffix(b"\n").unwrap_or(content);
        for (at, line) in content.split(|byte| *byte == b'\n').enumerate() {
            if at == PatternList::MAX_LINES {
                return Err(PatternListError::TooManyLines);
            }
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if matches!(line, [] | [b'#', ..]) {
                continue;
            }
            if line.len() > PatternList::MAX_PATTERN_BYTES {
                return Err(PatternListError::LineTooLong(at + 1));
            }
            patterns.push(line.to_vec());
        }
        if patterns.is_empty() {
            return Err(PatternListError::Empty);
        }
        Ok(PatternList::new(file, patterns))
    }
}

impl PartialEq for PatternList {
    /// Compares the names of the files and the patterns.
    fn eq(&self, other: &PatternList) -> bool {
        self.file == other.file
            && self.digest == other.digest
            && (Arc::ptr_eq(&self.patterns, &other.patterns) || self.patterns == other.patterns)
    }
}

impl Eq for PatternList {}

impl fmt::Display for Regex {
    /// As a rule has it: `/…/` or `/…/i`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("/")?;
        for (at, part) in self.source.split('/').enumerate() {
            let slash = if at == 0 { "" } else { "\\/" };
            write!(f, "{slash}{part}")?;
        }
        f.write_str(if self.ignores_case { "/i" } else { "/" })
    }
}

/// FNV-1a over the patterns, each with its length before it (Fowler, Noll and Vo; 64 bits).
fn digest(patterns: &[Vec<u8>]) -> u64 {
    let mut digest = 0xcbf2_9ce4_8422_2325u64;
    let mut add = |byte: u8| digest = (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    for pattern in patterns {
        (pattern.len() as u64).to_le_bytes().into_iter().for_each(&mut add);
        pattern.iter().copied().for_each(&mut add);
    }
    digest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(content: &[u8]) -> Result<Vec<Vec<u8>>, PatternListError> {
        PatternList::parse("f".to_owned(), content).map(|list| list.patterns.to_vec())
    }

    #[test]
    fn a_line_is_a_pattern_byte_by_byte() {
        let lines: &[&[u8]] = &[b"one", b" two ", b"\xff\x00", b" #three", b"\\\\four\\n"];
        let content = b"# a comment\none\r\n two \n\n\xff\x00\n #three\n\\\\four\\n";
        assert_eq!(parse(content).unwrap(), lines);
        assert_eq!(parse(b"one\n").unwrap(), [b"one"]);
    }

    #[test]
    fn what_is_no_list_is_refused_with_its_line() {
        assert_eq!(parse(b""), Err(PatternListError::Empty));
        assert_eq!(parse(b"# nothing\n\r\n"), Err(PatternListError::Empty));
        let long = [b"a\n".to_vec(), vec![b'x'; PatternList::MAX_PATTERN_BYTES + 1]].concat();
        assert_eq!(parse(&long), Err(PatternListError::LineTooLong(2)));
        let lines = b"a\n".repeat(PatternList::MAX_LINES);
        assert_eq!(parse(&lines).unwrap().len(), PatternList::MAX_LINES);
        let lines = [lines, b"a".to_vec()].concat();
        assert_eq!(parse(&lines), Err(PatternListError::TooManyLines));
        assert_eq!(parse(&vec![0; PatternList::MAX_BYTES + 1]), Err(PatternListError::TooLong));
    }

    #[test]
    fn lists_are_equal_if_file_and_patterns_are() {
        let list = |file: &str, patterns: &[&str]| {
            PatternList::new(file.to_owned(), patterns.iter().map(|p| p.as_bytes().to_vec()).collect())
        };
        assert_eq!(list("f", &["ab", "c"]), list("f", &["ab", "c"]));
        assert_ne!(list("f", &["ab", "c"]), list("g", &["ab", "c"]));
        assert_ne!(list("f", &["ab", "c"]).digest, list("f", &["a", "bc"]).digest);
    }

    #[test]
    fn a_slash_in_a_regex_is_printed_as_it_is_read() {
        let regex = Regex { source: "a/b".to_owned(), ignores_case: true };
        assert_eq!(regex.to_string(), "/a\\/b/i");
    }
}
