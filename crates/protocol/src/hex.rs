//! Bytes as text: two hexadecimal digits each. A state of a million connections has half a billion digits, so both
//! directions avoid branches and tables, so that the compiler vectorizes them.

/// Encodes bytes.
pub fn encode(bytes: &[u8]) -> String {
    let mut digits = Vec::new();
    encode_to(bytes, &mut digits);
    // Digits are ASCII.
    String::from_utf8(digits).unwrap_or_default()
}

/// Appends the digits of bytes.
pub(crate) fn encode_to(bytes: &[u8], digits: &mut Vec<u8>) {
    let before = digits.len();
    digits.resize(before + 2 * bytes.len(), 0);
    let (pairs, _) = digits[before..].as_chunks_mut::<2>();
    for (byte, pair) in bytes.iter().zip(pairs) {
        let byte = u16::from(*byte);
        // The high nibble in the low byte, so that it comes first in memory.
        let halves = byte >> 4 | (byte & 0xf) << 8;
        // A nibble above 9 carries into bit 4 when 6 is added: a 1 in the byte of each letter.
        let letters = (halves + 0x0606) >> 4 & 0x0101;
        let to_letter = u16::from(b'a' - b'0' - 10);
        *pair = (halves + 0x3030 + letters * to_letter).to_le_bytes();
    }
}

/// Decodes text; `None` if it is not hexadecimal.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    let byte = |pair: &[u8; 2]| {
        let pair = u16::from_le_bytes(*pair);
        let letters = pair >> 6 & 0x0101;
        let halves = (pair & 0x0f0f) + letters * 9;
        (halves << 4 | halves >> 8) as u8
    };
    are_digits(text.as_bytes()).then(|| pairs.iter().map(byte).collect())
}

/// Whether all bytes are hexadecimal digits.
pub(crate) fn are_digits(bytes: &[u8]) -> bool {
    // `is_ascii_hexdigit` has branches.
    let is_digit = |digit: u8| digit.wrapping_sub(b'0') < 10 || (digit | 0x20).wrapping_sub(b'a') < 6;
    bytes.iter().fold(0, |wrong, digit| wrong | u8::from(!is_digit(*digit))) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoded_bytes_are_the_encoded_ones() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(encode(&[0, 0x9f, 0xff]), "009fff");
        assert_eq!(decode(&encode(&all)), Some(all));
        assert_eq!(decode("00FF"), Some(vec![0, 255]));
        assert_eq!(decode(""), Some(Vec::new()));
        for wrong in ["0", "0g", "é", " 00", "0x"] {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
        for character in (0..128).map(char::from) {
            let value = character.to_digit(16).map(|value| vec![value as u8]);
            assert_eq!(decode(&format!("0{character}")), value, "{character:?}");
            let text = format!("{}{character}0{}", "00".repeat(40), "00".repeat(40));
            assert_eq!(decode(&text).is_some(), value.is_some(), "{character:?} within others");
        }
    }
}
