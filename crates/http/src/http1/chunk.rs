//! The line with the size of a chunk (RFC 9112, section 7.1).

use super::unfit::HttpUnfit;

/// The most bytes of the line, with its CRLF.
pub(crate) const MOST_CHUNK_LINE: usize = 256;
/// The most digits of a size, leading zeros too: more would overflow in programs that have 64 bits for it.
const MOST_DIGITS: usize = 16;

/// The size of a chunk, from its line without CRLF. Extensions (section 7.1.1) are not read, but must begin with a semicolon right behind the
/// size, and have no control bytes.
pub(crate) fn chunk_size(line: &[u8]) -> Result<u64, HttpUnfit> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    if digits == 0 || digits > MOST_DIGITS {
        return Err(HttpUnfit::ChunkSize);
    }
    let (size, extensions) = line.split_at(digits);
    if !matches!(extensions, [] | [b';', ..])
        || extensions.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t')
    {
        return Err(HttpUnfit::ChunkExtension);
    }
    let value = |digit: &u8| char::from(*digit).to_digit(16).map_or(0, u64::from);
    Ok(size.iter().fold(0, |sum, digit| sum << 4 | value(digit)))
}
