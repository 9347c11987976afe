//! The line with the size of a chunk (RFC 9112, section 7.1).

use super::piece::HttpDirection;
use super::unfit::HttpUnfit;

/// The most bytes of the line, with its line end.
pub(crate) const fn max_chunk_line(direction: HttpDirection) -> usize {
    match direction {
        HttpDirection::Requests => 256,
        HttpDirection::Responses => 4096,
    }
}

/// The most digits of a size, leading zeros too: more would overflow in programs that have 64 bits for it.
const MAX_DIGITS: usize = 16;

/// The size of a chunk, from its line without its line end. Extensions (section 7.1.1) are not read. In requests they begin with a semicolon right
/// after the size, and have no control bytes. In responses all clients ignore blanks after the size, which embedded servers write to fill up a
/// fixed number of digits, and control bytes in extensions.
pub(crate) fn chunk_size(direction: HttpDirection, line: &[u8]) -> Result<u64, HttpUnfit> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    if digits == 0 || digits > MAX_DIGITS {
        return Err(HttpUnfit::ChunkSize);
    }
    let (size, behind) = line.split_at(digits);
    let is_refused = |byte: &u8| match direction {
        HttpDirection::Requests => byte.is_ascii_control() && *byte != b'\t',
        HttpDirection::Responses => *byte == b'\r',
    };
    let blanks = match direction {
        HttpDirection::Requests => 0,
        HttpDirection::Responses => behind.iter().take_while(|byte| **byte == b' ').count(),
    };
    if !matches!(behind[blanks..], [] | [b';', ..]) || behind.iter().any(is_refused) {
        return Err(HttpUnfit::ChunkExtension);
    }
    let value = |digit: &u8| char::from(*digit).to_digit(16).map_or(0, u64::from);
    Ok(size.iter().fold(0, |sum, digit| sum << 4 | value(digit)))
}
