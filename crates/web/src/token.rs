//! Tokens: secrets by which a client proves that it may use the page, the API or the metrics.

use rustix::rand::{GetRandomFlags, getrandom};
use std::fmt::{self, Write as _};
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use subtle::ConstantTimeEq;

/// Random bytes of a token that mmb makes.
const RANDOM_BYTES: usize = 32;

/// The fewest and the most characters of a token.
const LENGTHS: std::ops::RangeInclusive<usize> = 16..=512;

/// The most bytes of a file that are read.
const MAX_FILE_BYTES: u64 = 4096;

/// The reason why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// Everybody on this machine may read the file.
    #[error("{}: every user can read this token; chmod 600 it, or 640 for a group", .0.display())]
    Public(PathBuf),
    /// The first line is no token.
    #[error(
        "{}: the first line is no token: 16 to 512 letters, digits or any of -._~+/=; a file that does not exist is made with a new one",
        .0.display()
    )]
    Unfit(PathBuf),
    /// The system refused.
    #[error("{}: cannot {what}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The action that failed.
        what: &'static str,
        /// The system's error.
        #[source]
        error: io::Error,
    },
    /// The system gave no random numbers.
    #[error("the system gives no random numbers for a token")]
    Random(#[source] io::Error),
}

/// A secret that is compared in constant time and never printed by `Debug`.
#[derive(Clone)]
pub struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

impl Token {
    /// Makes a token of 256 random bits.
    ///
    /// # Errors
    /// The system gives no random numbers.
    pub fn random() -> Result<Token, TokenError> {
        let mut bytes = [0; RANDOM_BYTES];
        let read = getrandom(&mut bytes, GetRandomFlags::empty());
        match read {
            Ok(RANDOM_BYTES) => {}
            Ok(_) => return Err(TokenError::Random(io::ErrorKind::UnexpectedEof.into())),
            Err(error) => return Err(TokenError::Random(error.into())),
        }
        let mut text = String::with_capacity(2 * RANDOM_BYTES);
        for byte in bytes {
            // Writing to a string does not fail.
            let _ = write!(text, "{byte:02x}");
        }
        Ok(Token(text))
    }

    /// Reads the token in the first line of a file; makes a file with a random one, for its owner only, if there is none.
    ///
    /// # Errors
    /// The file cannot be used, everybody can read it, another user could have put it there, or it has no token.
    pub fn from_file(path: &Path) -> Result<Token, TokenError> {
        let failed = |what| move |error| TokenError::Io { path: path.to_owned(), what, error };
        let file = match mmb_files::open_trusted(path).map_err(io::Error::from) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Token::make_file(path),
            Err(error) => return Err(failed("read the token")(error)),
        };
        let mode = file.metadata().map_err(failed("look at the file"))?.mode();
        if mode & 0o007 != 0 {
            return Err(TokenError::Public(path.to_owned()));
        }
        let mut text = Vec::new();
        file.take(MAX_FILE_BYTES).read_to_end(&mut text).map_err(failed("read the token"))?;
        let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii();
        let is_fit = LENGTHS.contains(&line.len())
            && line.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(byte));
        match std::str::from_utf8(line) {
            Ok(line) if is_fit => Ok(Token(line.to_owned())),
            _ => Err(TokenError::Unfit(path.to_owned())),
        }
    }

    /// The characters, to be shown to the user who started the program.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether a client gave this token. The time that this takes does not depend on the characters.
    pub(crate) fn is(&self, given: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(given).into()
    }

    fn make_file(path: &Path) -> Result<Token, TokenError> {
        let failed = |what| move |error| TokenError::Io { path: path.to_owned(), what, error };
        let token = Token::random()?;
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(failed("make the file"))?;
        writeln!(file, "{}", token.0).map_err(failed("write the token"))?;
        Ok(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_token_is_only_itself() {
        let token = Token::random().expect("random numbers");
        assert!(token.is(token.reveal().as_bytes()));
        assert_eq!(token.reveal().len(), 64);
        for other in ["", "x", &token.reveal()[..63], &format!("{}0", token.reveal())] {
            assert!(!token.is(other.as_bytes()), "{other}");
        }
        assert_ne!(token.reveal(), Token::random().expect("random numbers").reveal());
    }

    #[test]
    fn nothing_prints_a_token() {
        let token = Token::random().expect("random numbers");
        assert!(!format!("{token:?}").contains(token.reveal()));
    }

    #[test]
    fn a_missing_file_is_made_for_its_owner_and_read_again() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("token");
        let made = Token::from_file(&path).expect("made");
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        assert_eq!(Token::from_file(&path).expect("read").reveal(), made.reveal());
    }

    #[test]
    fn a_file_that_everybody_reads_or_that_has_no_token_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("token");
        let with = |content: &str, mode| {
            fs::write(&path, content).expect("writes");
            fs::set_permissions(&path, Permissions::from_mode(mode)).expect("sets");
            Token::from_file(&path)
        };
        assert!(with("0123456789abcdef\nmore\n", 0o640).is_ok_and(|token| token.is(b"0123456789abcdef")));
        assert!(matches!(with("0123456789abcdef\n", 0o644), Err(TokenError::Public(_))));
        for content in
            ["", "\n0123456789abcdef\n", "0123456789abcde\n", "0123456789 abcdef\n", "é123456789abcdefgh\n"]
        {
            assert!(matches!(with(content, 0o600), Err(TokenError::Unfit(_))), "{content:?}");
        }
    }
}
