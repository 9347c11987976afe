//! Messages read in the plainest way, from all bytes of a direction.

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parsed {
    pub(crate) first_line: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Option<Vec<u8>>,
    pub(crate) trailers: Vec<(String, String)>,
}

impl Parsed {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| &value[..])
    }
}

fn lines(text: &[u8]) -> (Vec<String>, usize) {
    let end = text.windows(4).position(|window| window == b"\r\n\r\n").expect("the end of a head") + 4;
    let text = String::from_utf8(text[..end - 4].to_vec()).expect("ASCII");
    (text.split("\r\n").map(str::to_owned).collect(), end)
}

fn header(line: &str) -> (String, String) {
    let (name, value) = line.split_once(':').expect("a colon");
    (name.to_owned(), value.trim().to_owned())
}

/// Reads messages up to the end. `has_body` says whether the message with that number, not counting 1xx, can have one; a response without a
/// length has all that follows.
pub(crate) fn parse(mut bytes: &[u8], has_body: impl Fn(usize) -> bool) -> Vec<Parsed> {
    let (mut messages, mut number) = (Vec::new(), 0);
    while !bytes.is_empty() {
        let (lines, end) = lines(bytes);
        bytes = &bytes[end..];
        let mut message = Parsed {
            first_line: lines[0].clone(),
            headers: lines[1..].iter().map(|line| header(line)).collect(),
            body: None,
            trailers: Vec::new(),
        };
        let is_response = message.first_line.starts_with("HTTP/");
        let status = message.first_line.split(' ').nth(1).unwrap_or_default().to_owned();
        let is_interim = is_response && status.starts_with('1');
        let can = !is_interim && has_body(number) && !["204", "304"].contains(&status.as_str());
        number += usize::from(!is_interim);
        if can && message.header("transfer-encoding") == Some("chunked") {
            let mut body = Vec::new();
            loop {
                let line = bytes.windows(2).position(|window| window == b"\r\n").expect("a line");
                let size =
                    std::str::from_utf8(&bytes[..line]).expect("ASCII").split(';').next().expect("a size");
                let size = usize::from_str_radix(size, 16).expect("digits");
                bytes = &bytes[line + 2..];
                if size == 0 {
                    break;
                }
                body.extend(&bytes[..size]);
                assert_eq!(bytes[size..size + 2], *b"\r\n");
                bytes = &bytes[size + 2..];
            }
            while !bytes.starts_with(b"\r\n") {
                let line = bytes.windows(2).position(|window| window == b"\r\n").expect("a line");
                message.trailers.push(header(std::str::from_utf8(&bytes[..line]).expect("ASCII")));
                bytes = &bytes[line + 2..];
            }
            bytes = &bytes[2..];
            message.body = Some(body);
        } else if let Some(length) = message.header("content-length").filter(|_| can) {
            let length = length.parse().expect("a number");
            message.body = Some(bytes[..length].to_vec());
            bytes = &bytes[length..];
        } else if can && is_response {
            message.body = Some(bytes.to_vec());
            bytes = &[];
        }
        messages.push(message);
    }
    messages
}
