//! Bytes as text: two hexadecimal digits each. A state of a million connections has half a billion digits, so both directions look up whole bytes.

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// The digits of each byte.
const PAIRS: [[u8; 2]; 256] = pairs();

/// The value of each digit; [`NONE`] for other characters.
const VALUES: [u8; 256] = values();

/// The value of a character that is no digit. Two valid values joined by `|` never give it.
const NONE: u8 = 0xf0;

/// Encodes bytes.
pub fn encode(bytes: &[u8]) -> String {
    let digits: Vec<[u8; 2]> = bytes.iter().map(|byte| PAIRS[usize::from(*byte)]).collect();
    // Digits are ASCII.
    String::from_utf8(digits.into_flattened()).unwrap_or_default()
}

/// Decodes text; `None` if it is not hexadecimal.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    let mut seen = 0;
    let byte = |[high, low]: &[u8; 2]| {
        let (high, low) = (VALUES[usize::from(*high)], VALUES[usize::from(*low)]);
        seen |= high | low;
        high << 4 | low
    };
    let bytes = pairs.iter().map(byte).collect();
    (seen & NONE == 0).then_some(bytes)
}

const fn pairs() -> [[u8; 2]; 256] {
    let mut pairs = [[0; 2]; 256];
    let mut byte = 0;
    while byte < pairs.len() {
        pairs[byte] = [DIGITS[byte >> 4], DIGITS[byte & 15]];
        byte += 1;
    }
    pairs
}

const fn values() -> [u8; 256] {
    let mut values = [NONE; 256];
    let mut digit = 0;
    while digit < DIGITS.len() {
        values[DIGITS[digit] as usize] = digit as u8;
        values[DIGITS[digit].to_ascii_uppercase() as usize] = digit as u8;
        digit += 1;
    }
    values
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
    }
}
