//! Bytes as text: two hexadecimal digits each.

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Encodes bytes.
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from(DIGITS[usize::from(digit)]));
        }
    }
    text
}

/// Decodes text; `None` if it is not hexadecimal.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let digit = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
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
