//! Which bytes may stand where, as a table.

const TOKEN: u8 = 1 << 0;
const HOST: u8 = 1 << 1;
const ADDRESS: u8 = 1 << 2;

static CLASSES: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut classes = [0; 256];
    let mut byte = 0;
    while byte < 128 {
        if (byte as u8).is_ascii_alphanumeric() {
            classes[byte] = TOKEN | HOST | ADDRESS;
        }
        byte += 1;
    }
    let classes = add(classes, b"!#$%&'*+-.^_`|~", TOKEN);
    let classes = add(classes, b"-._~%!$&'()*+;=", HOST);
    add(classes, b":.-_~%", ADDRESS)
}

const fn add(mut classes: [u8; 256], bytes: &[u8], class: u8) -> [u8; 256] {
    let mut at = 0;
    while at < bytes.len() {
        classes[bytes[at] as usize] |= class;
        at += 1;
    }
    classes
}

/// Whether a byte may stand in a token (RFC 9110, section 5.6.2).
pub(crate) fn is_token_byte(byte: u8) -> bool {
    CLASSES[usize::from(byte)] & TOKEN != 0
}

/// Whether a byte may stand in a registered name (RFC 3986, section 3.2.2), commas apart: they would make a list of Host.
pub(crate) fn is_host_byte(byte: u8) -> bool {
    CLASSES[usize::from(byte)] & HOST != 0
}

/// Whether a byte may stand between the brackets of an IP address, with its zone.
pub(crate) fn is_address_byte(byte: u8) -> bool {
    CLASSES[usize::from(byte)] & ADDRESS != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_the_characters_of_the_grammar() {
        for byte in 0..=u8::MAX {
            let is_alphanumeric = byte.is_ascii_alphanumeric();
            assert_eq!(is_token_byte(byte), is_alphanumeric || b"!#$%&'*+-.^_`|~".contains(&byte));
            let is_unreserved = is_alphanumeric || b"-._~".contains(&byte);
            assert_eq!(is_host_byte(byte), is_unreserved || b"%!$&'()*+;=".contains(&byte));
            assert_eq!(is_address_byte(byte), is_unreserved || b":%".contains(&byte));
        }
    }
}
