//! Text to words and signs.
//!
//! The lexer walks the text once and borrows from it. It knows comments, joined lines, texts and bytes, but no
//! keyword but the fields that take patterns, since only behind those a `/` begins a regex: what a word means is
//! the parser's matter. A mistake inside a token is reported here and the token
//! stays, so that the parser can go on behind it; bytes that had mistakes stand for some byte, never for none, so that
//! the checker does not complain again.

use crate::diagnostic::{Diagnostic, Errors, TextSpan};
use mmb_policy::field::{FieldId, ValueKind};
use mmb_policy::http::{Replacement, ReplacementPart};
use mmb_policy::pattern::Regex;
use mmb_policy::rule::Cond;
use std::borrow::Cow;

/// A word or a sign, and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Token<'a> {
    pub(crate) kind: TokenKind<'a>,
    pub(crate) span: TextSpan,
}

impl Token<'_> {
    /// The word, or nothing if it is none.
    pub(crate) fn word(&self) -> &str {
        match &self.kind {
            TokenKind::Word(word) => word,
            _ => "",
        }
    }
}

/// The kind of a token.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TokenKind<'a> {
    /// A word, a number, an address.
    Word(Cow<'a, str>),
    /// `"text"`, unescaped.
    Text(Vec<u8>),
    /// `"text"` with `\m` in it.
    Replacement(Replacement),
    /// `|de ad|`
    Bytes(Vec<u8>),
    /// `/regex/` or `/regex/i`, with `\/` as `/`.
    Regex(Regex),
    /// `==` and the like.
    Cond(Cond),
    /// `=`, which is no condition, but a likely slip.
    Assign,
    /// `!`
    Bang,
    /// `{`
    Open,
    /// `}`
    Close,
    /// `,`
    Comma,
    /// The end of the command.
    End,
}

/// The most bytes of one command. Sets of thousands of values take far less.
const MAX_COMMAND_BYTES: usize = 16 << 20;

/// The dashes of typeset documents, which commands pasted from papers have.
const DASHES: [char; 5] = ['\u{2010}', '\u{2011}', '\u{2012}', '\u{2013}', '\u{2212}'];

/// Reads tokens from a text, command by command.
pub(crate) struct Lexer<'a> {
    source: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(source: &'a str) -> Lexer<'a> {
        Lexer { source, at: 0 }
    }

    /// Returns whether the text has been read to its end.
    pub(crate) fn is_done(&self) -> bool {
        self.at >= self.source.len()
    }

    /// The first byte that was not read yet.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Reads the tokens of one command, up to the end of its (joined) line; the last one is [`TokenKind::End`]. Of a
    /// command that is too long only the first token is left before it.
    pub(crate) fn command(&mut self, tokens: &mut Vec<Token<'a>>, errors: &mut Errors) {
        tokens.clear();
        let (mut too_long, mut in_patterns) = (None, false);
        loop {
            self.skip_blank(errors);
            let start = self.at;
            let is_regex = self.rest().starts_with('/') && (in_patterns || is_behind_pattern_field(tokens));
            let kind = if is_regex { self.regex(errors) } else { self.token(errors) };
            match kind {
                TokenKind::Open => in_patterns = is_behind_pattern_field(tokens),
                TokenKind::Close => in_patterns = false,
                _ => {}
            }
            let last = kind == TokenKind::End;
            let end = if last { start } else { self.at };
            if too_long.is_none() || last {
                tokens.push(Token { kind, span: TextSpan { start, end } });
            }
            if last {
                break;
            }
            if end - tokens[0].span.start > MAX_COMMAND_BYTES {
                tokens.truncate(1);
                too_long = Some(tokens[0].span);
            }
        }
        if let Some(span) = too_long {
            let message = format!("this command is longer than {} MiB", MAX_COMMAND_BYTES >> 20);
            errors.push(Diagnostic::new(span, message).expected("several commands"));
        }
    }

    fn rest(&self) -> &'a str {
        &self.source[self.at..]
    }

    /// Skips blanks, comments and joined line ends.
    fn skip_blank(&mut self, errors: &mut Errors) {
        loop {
            let blanks = self.source.as_bytes()[self.at..].iter().take_while(|byte| **byte == b' ').count();
            self.at += blanks;
            if self.next_is_plain() {
                return;
            }
            let rest = self.rest();
            let Some(c) = rest.chars().next() else { return };
            match c {
                '\n' => return,
                '#' => self.at += rest.find('\n').unwrap_or(rest.len()),
                '\\' => {
                    let behind = rest[1..].trim_start_matches([' ', '\t', '\r']);
                    if let Some(next) = behind.strip_prefix('\n') {
                        self.at = self.source.len() - next.len();
                    } else if behind.is_empty() {
                        self.at = self.source.len();
                    } else {
                        let span = TextSpan { start: self.at, end: self.at + 1 };
                        errors.push(
                            Diagnostic::new(
                                span,
                                "`\\` joins two lines only as the last character of the first",
                            )
                            .expected("the end of the line behind `\\`"),
                        );
                        self.at += 1;
                    }
                }
                c if c.is_whitespace() || (c == '\u{feff}' && self.at == 0) => self.at += c.len_utf8(),
                _ => return,
            }
        }
    }

    fn token(&mut self, errors: &mut Errors) -> TokenKind<'a> {
        if self.next_is_plain() {
            return self.word();
        }
        let rest = self.rest();
        let mut chars = rest.chars();
        let (kind, len) = match (chars.next(), chars.next()) {
            (None, _) => (TokenKind::End, 0),
            (Some('\n'), _) => (TokenKind::End, 1),
            (Some('!'), Some('=')) => (TokenKind::Cond(Cond::Ne), 2),
            (Some('='), Some('=')) => (TokenKind::Cond(Cond::Eq), 2),
            (Some('<'), Some('=')) => (TokenKind::Cond(Cond::Le), 2),
            (Some('>'), Some('=')) => (TokenKind::Cond(Cond::Ge), 2),
            (Some('<'), _) => (TokenKind::Cond(Cond::Lt), 1),
            (Some('>'), _) => (TokenKind::Cond(Cond::Gt), 1),
            (Some('='), _) => (TokenKind::Assign, 1),
            (Some('!'), _) => (TokenKind::Bang, 1),
            (Some('{'), _) => (TokenKind::Open, 1),
            (Some('}'), _) => (TokenKind::Close, 1),
            (Some(','), _) => (TokenKind::Comma, 1),
            (Some('"'), _) => return self.text(errors),
            (Some('|'), _) => return self.bytes(errors),
            (Some(_), _) => return self.word(),
        };
        self.at += len;
        kind
    }

    /// Returns whether the next byte is ASCII and certainly part of a word.
    fn next_is_plain(&self) -> bool {
        self.source.as_bytes().get(self.at).is_some_and(|byte| is_plain(*byte))
    }

    fn word(&mut self) -> TokenKind<'a> {
        let rest = self.rest();
        let plain = rest.bytes().position(|byte| !is_plain(byte)).unwrap_or(rest.len());
        let len = plain + rest[plain..].find(ends_word).unwrap_or(rest.len() - plain);
        let word = &rest[..len];
        self.at += len;
        let is_ascii = plain == len || word.is_ascii();
        TokenKind::Word(if is_ascii { Cow::Borrowed(word) } else { word.replace(DASHES, "-").into() })
    }

    /// `"…"` with the escapes `\n \r \t \0 \\ \" \xNN` and `\m`, on one line.
    fn text(&mut self, errors: &mut Errors) -> TokenKind<'a> {
        let (start, errors_before) = (self.at, errors.len());
        let (mut bytes, mut parts) = (Vec::new(), Vec::new());
        let mut chars = self.rest().char_indices().skip(1);
        loop {
            match chars.next() {
                None | Some((_, '\n')) => {
                    self.at = start + self.rest().find('\n').unwrap_or(self.rest().len());
                    let span = TextSpan { start, end: start + 1 };
                    errors.push(Diagnostic::new(span, "this text has no end").expected("a closing `\"`"));
                    break;
                }
                Some((at, '"')) => {
                    self.at = start + at + 1;
                    break;
                }
                Some((at, '\\')) if self.rest()[at + 1..].starts_with('m') => {
                    chars.next();
                    parts.extend([
                        ReplacementPart::Bytes(std::mem::take(&mut bytes)),
                        ReplacementPart::Matched,
                    ]);
                }
                Some((at, '\\')) => match self.escape(start + at + 1) {
                    Some((byte, len)) => {
                        bytes.push(byte);
                        // The escape is ASCII: as many characters as bytes.
                        for _ in 0..len {
                            chars.next();
                        }
                    }
                    None => {
                        let span = TextSpan { start: start + at, end: start + at + 1 };
                        errors.push(Diagnostic::new(span, "unknown escape").expected(
                            "one of \\n \\r \\t \\0 \\\\ \\\", \\xNN with two hexadecimal digits, and \\m in what `mod` writes",
                        ));
                    }
                },
                Some((_, c)) => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        if errors.len() > errors_before {
            // The text is not empty, and nothing else is wrong with it: its error is told.
            bytes.push(b'x');
        }
        if parts.is_empty() {
            return TokenKind::Text(bytes);
        }
        parts.push(ReplacementPart::Bytes(bytes));
        TokenKind::Replacement(Replacement::new(parts))
    }

    /// The byte that the escape at `at` (behind its `\`) stands for, and the escape's length in bytes.
    fn escape(&self, at: usize) -> Option<(u8, usize)> {
        let bytes = &self.source.as_bytes()[at..];
        Some(match bytes.first()? {
            b'n' => (b'\n', 1),
            b'r' => (b'\r', 1),
            b't' => (b'\t', 1),
            b'0' => (0, 1),
            b'\\' => (b'\\', 1),
            b'"' => (b'"', 1),
            b'x' => (hex(*bytes.get(1)?)? << 4 | hex(*bytes.get(2)?)?, 3),
            _ => return None,
        })
    }

    /// `/regex/` or `/regex/i`, on one line.
    fn regex(&mut self, errors: &mut Errors) -> TokenKind<'a> {
        let start = self.at;
        let line = self.rest().lines().next().unwrap_or_default();
        let (mut source, mut escaped, mut end) = (String::new(), false, None);
        for (at, c) in line.char_indices().skip(1) {
            match (escaped, c) {
                (false, '/') => {
                    end = Some(at + 1);
                    break;
                }
                (false, '\\') => {
                    escaped = true;
                    continue;
                }
                (true, '/') => {}
                (true, _) => source.push('\\'),
                (false, _) => {}
            }
            escaped = false;
            source.push(c);
        }
        let Some(end) = end else {
            self.at = start + line.len();
            let span = TextSpan { start, end: start + 1 };
            let error = Diagnostic::new(span, "this regex has no end");
            errors.push(error.expected("a closing `/`; a slash of the regex is `\\/`"));
            return TokenKind::Regex(Regex { source: ".".to_owned(), ignores_case: false });
        };
        let flags = &line[end..]
            [..line[end..].find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(line.len() - end)];
        self.at = start + end + flags.len();
        if !matches!(flags, "" | "i") {
            let span = TextSpan { start: start + end, end: self.at };
            let error = Diagnostic::new(span, format!("`{flags}` means nothing behind a regex"));
            errors.push(
                error.expected("`i` (letters in either case) or nothing; a slash of the regex is `\\/`"),
            );
        }
        TokenKind::Regex(Regex { source, ignores_case: flags == "i" })
    }

    /// `|de ad be ef|`, on one line.
    fn bytes(&mut self, errors: &mut Errors) -> TokenKind<'a> {
        let start = self.at;
        let rest = &self.rest()[1..];
        let line = &rest[..rest.find('\n').unwrap_or(rest.len())];
        let Some(len) = line.find('|') else {
            self.at = start + 1 + line.len();
            let span = TextSpan { start, end: start + 1 };
            errors.push(Diagnostic::new(span, "these bytes have no end").expected("a closing `|`"));
            return TokenKind::Bytes(vec![0]);
        };
        self.at = start + len + 2;
        let mut bytes = Vec::new();
        for group in line[..len].split_ascii_whitespace() {
            let digits: Option<Vec<u8>> = group.bytes().map(hex).collect();
            match digits {
                Some(digits) if digits.len() % 2 == 0 => {
                    bytes.extend(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]));
                }
                _ => {
                    let offset = group.as_ptr() as usize - self.source.as_ptr() as usize;
                    let span = TextSpan { start: offset, end: offset + group.len() };
                    errors.push(
                        Diagnostic::new(span, format!("`{group}` is not a row of bytes"))
                            .expected("pairs of hexadecimal digits, as in |de ad be ef|"),
                    );
                    bytes.push(0);
                }
            }
        }
        TokenKind::Bytes(bytes)
    }
}

/// Whether the last tokens are a field that takes patterns, the name of a header field where it takes one, and maybe a condition.
fn is_behind_pattern_field(tokens: &[Token<'_>]) -> bool {
    let before = match tokens {
        [before @ .., Token { kind: TokenKind::Cond(_) | TokenKind::Assign, .. }] => before,
        tokens => tokens,
    };
    let values = |token: &Token<'_>| FieldId::named(token.word()).map(|id| id.info().values);
    let of_header = |token: &Token<'_>| values(token) == Some(ValueKind::Header);
    match before {
        [.., field, Token { kind: TokenKind::Word(_) | TokenKind::Text(_), .. }] if of_header(field) => true,
        [.., field] => values(field).is_some_and(ValueKind::has_patterns),
        [] => false,
    }
}

/// Most words are made of these alone, and files are long.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-'..=b':' | b'_')
}

fn ends_word(c: char) -> bool {
    c.is_whitespace() || matches!(c, '!' | '=' | '<' | '>' | '{' | '}' | ',' | '"' | '|' | '#' | '\\')
}

/// Returns whether a name can be written as one word.
pub(crate) fn is_word(name: &str) -> bool {
    !name.is_empty() && !name.chars().any(|c| ends_word(c) || c.is_control() || DASHES.contains(&c))
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|d| d as u8)
}
