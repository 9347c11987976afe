//! The grammar of HTTP/1.x in the plainest code: whole heads as regexes, bytes one after the other.

use super::pieces::{Kind, Pieces, Step, other};
use mmb_http::{FramingKind, HttpDirection};
use regex::bytes::{Captures, Regex};
use std::sync::LazyLock;

const TOKEN: &str = r"[!#$%&'*+.^_`|~0-9A-Za-z-]";
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The first bytes of a connection of another protocol.
const OTHERS: [&[u8]; 2] = [PREFACE, b"\x16\x03"];
const MAX_OUTSTANDING: usize = 64;
const MAX_HEADERS: usize = 128;

fn regex(text: &str) -> Regex {
    let headers = format!(r"((?:{TOKEN}+:[\t\x20-\x7e\x80-\xff]*\r\n)*)\r\n");
    // Of responses: LF for CRLF, blanks in front of the colon, control bytes, folds.
    let line = format!(r"{TOKEN}+[ \t]*:[^\x00\r\n]*\r?\n(?:[ \t][^\x00\r\n]*\r?\n)*");
    let odd = format!(r"((?:{line})*)\r?\n");
    let text = text.replace("TOKEN", TOKEN).replace("HEADERS", &headers).replace("ODD", &odd);
    Regex::new(&format!("(?s-u)\\A{text}")).expect("a regex")
}

static REQUEST: LazyLock<Regex> =
    LazyLock::new(|| regex(r"(TOKEN{1,32}) ([\x21-\x7e]+) HTTP/1\.([01])\r\nHEADERS"));
static RESPONSE: LazyLock<Regex> =
    LazyLock::new(|| regex(r"HTTP/1\.([01]) ([1-9][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*)?\r?\nODD"));
static TRAILERS: LazyLock<[Regex; 2]> = LazyLock::new(|| [regex("HEADERS"), regex("ODD")]);
static CHUNK: LazyLock<[Regex; 2]> = LazyLock::new(|| {
    let [strict, odd] = [
        r"([0-9A-Fa-f]{1,16})(?:;[\t\x20-\x7e\x80-\xff]*)?\r\n",
        r"([0-9A-Fa-f]{1,16}) *(?:;[^\r\n]*)?\r?\n",
    ];
    [regex(strict), regex(odd)]
});
static LINE_END: LazyLock<Regex> = LazyLock::new(|| Regex::new("\n").expect("a regex"));
/// Where a section may end, and how long the line with the size of a chunk may be.
static SECTION_END: LazyLock<[Regex; 2]> =
    LazyLock::new(|| [r"\r\n\r\n", r"\n\r?\n"].map(|text| Regex::new(text).expect("a regex")));
const MAX_CHUNK_LINE: [usize; 2] = [256, 4096];
/// Headers of responses that are not to be odd.
const STRICT: [&str; 4] = ["content-length", "transfer-encoding", "connection", "upgrade"];
static ABSOLUTE: LazyLock<Regex> =
    LazyLock::new(|| regex(r"([A-Za-z][A-Za-z0-9+.-]*)://(?:[^/?#]*@)?([^/?#@]+)(?:[/?#].*)?\z"));
static HOST_PORT: LazyLock<Regex> =
    LazyLock::new(|| regex(r"(\[[A-Za-z0-9:._~%-]*\]|[A-Za-z0-9._~%!$&'()*+;=-]*)(?::([0-9]*))?\z"));

/// Where a direction is.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Head,
    Length(u64),
    UntilClose,
    ChunkSize,
    ChunkData(u64),
    ChunkEnd,
    Trailers,
    End,
    Over,
}

#[derive(Default)]
struct Asked {
    method: Vec<u8>,
    is_http10: bool,
    has_upgrade: bool,
}

struct Direction {
    bytes: Vec<u8>,
    at: usize,
    has_ended: bool,
    place: Place,
    is_last: bool,
    may_persist: bool,
    blanks: usize,
    messages: usize,
}

/// The model of a connection.
pub(super) struct Model {
    limit: usize,
    directions: [Direction; 2],
    asked: Vec<Asked>,
    waits: bool,
    is_opaque: bool,
    /// Something was refused.
    pub(super) is_bad: bool,
    pub(super) pieces: [Pieces; 2],
}

/// The headers of a message by name in small letters.
struct Fields(Vec<(String, Vec<u8>)>);

fn trim(text: &[u8]) -> &[u8] {
    let is_kept = |byte: &u8| !b" \t\r\n".contains(byte);
    let Some(start) = text.iter().position(is_kept) else { return &[] };
    &text[start..=text.iter().rposition(is_kept).unwrap_or(start)]
}

impl Fields {
    /// The fields of lines; `None` if one is odd that must not be.
    fn of(lines: &[u8]) -> Option<Fields> {
        let mut fields: Vec<(String, Vec<u8>)> = Vec::new();
        for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let is_strict = |name: &String| STRICT.contains(&name.as_str());
            if line.starts_with(b" ") || line.starts_with(b"\t") {
                let (name, value) = fields.last_mut().expect("the regex has a line before it");
                if is_strict(name) {
                    return None;
                }
                *value = trim(&[value, &b" "[..], trim(line)].concat()).to_vec();
                continue;
            }
            let colon = line.iter().position(|byte| *byte == b':').expect("the regex has a colon");
            let name = String::from_utf8_lossy(trim(&line[..colon])).to_ascii_lowercase();
            if name.len() != colon && is_strict(&name) {
                return None;
            }
            fields.push((name, trim(&line[colon + 1..]).to_vec()));
        }
        Some(Fields(fields))
    }

    fn all(&self, name: &str) -> Vec<&[u8]> {
        self.0.iter().filter(|(known, _)| known == name).map(|(_, value)| &value[..]).collect()
    }

    fn options(&self) -> Vec<String> {
        let values = self.all("connection").join(&b","[..]);
        String::from_utf8_lossy(&values)
            .to_ascii_lowercase()
            .split(',')
            .map(|text| text.trim().to_owned())
            .collect()
    }

    fn is_last(&self, is_http10: bool) -> bool {
        let options = self.options();
        let has = |option: &str| options.iter().any(|known| known == option);
        has("close") || (is_http10 && !has("keep-alive"))
    }

    /// Whether some clients find `keep-alive`.
    fn names_keep_alive(&self) -> bool {
        let values = [self.all("connection"), self.all("proxy-connection")].concat();
        values.iter().any(|value| String::from_utf8_lossy(value).to_ascii_lowercase().contains("keep-alive"))
    }

    /// The place behind the head by the headers alone; `None` if they are bad.
    fn framing(&self, is_http10: bool, is_request: bool) -> Option<Option<Place>> {
        let options = self.options();
        let named = ["content-length", "transfer-encoding"];
        let is_bad = |option: &String| {
            let is_unclear = option == "host" || (option != "close" && option.contains("close"));
            named.contains(&option.as_str()) || (is_request && is_unclear)
        };
        if self.0.len() > MAX_HEADERS || options.iter().any(is_bad) {
            return None;
        }
        let mut lengths = self.all("content-length");
        if !is_request {
            lengths.dedup();
            let is_number = |text: &[u8]| {
                text.iter().all(u8::is_ascii_digit) && String::from_utf8_lossy(text).parse::<u64>().is_ok()
            };
            let encodings = self.all("transfer-encoding").len();
            if encodings > 0 && lengths.len() == 1 && lengths.iter().all(|length| is_number(length)) {
                lengths.clear();
            }
        }
        match (&lengths[..], &self.all("transfer-encoding")[..]) {
            ([], []) => Some(None),
            ([length], []) if length.iter().all(u8::is_ascii_digit) => {
                let length: u64 = std::str::from_utf8(length).ok()?.parse().ok()?;
                Some(Some(if length == 0 { Place::End } else { Place::Length(length) }))
            }
            ([], [coding]) if coding.eq_ignore_ascii_case(b"chunked") && !is_http10 => {
                Some(Some(Place::ChunkSize))
            }
            _ => None,
        }
    }
}

/// Host and port; `None` if it is neither.
fn host_port(text: &[u8]) -> Option<(Vec<u8>, Option<u16>)> {
    let found = HOST_PORT.captures(text)?;
    let port = match found.get(2).map(|port| port.as_bytes()) {
        None | Some(b"") => None,
        Some(port) => Some(std::str::from_utf8(port).ok()?.parse().ok()?),
    };
    Some((found[1].to_ascii_lowercase(), port))
}

/// Whether target and Host go together.
fn target_is_good(method: &[u8], target: &[u8], hosts: &[&[u8]], is_http10: bool) -> bool {
    let (authority, default) = if method == b"CONNECT" {
        let Some(colon) = target.iter().rposition(|byte| *byte == b':') else { return false };
        let port = &target[colon + 1..];
        if colon == 0 || port.is_empty() || !port.iter().all(u8::is_ascii_digit) {
            return false;
        }
        (Some(target.to_vec()), None)
    } else if target.starts_with(b"/") || (target == b"*" && method == b"OPTIONS") {
        (None, None)
    } else if let Some(found) = ABSOLUTE.captures(target) {
        let port = match &found[1].to_ascii_lowercase()[..] {
            b"http" => Some(80),
            b"https" => Some(443),
            _ => None,
        };
        (Some(found[2].to_vec()), port)
    } else {
        return false;
    };
    let target = match &authority {
        None => None,
        Some(authority) => match host_port(authority) {
            None => return false,
            parts => parts,
        },
    };
    match (hosts, target) {
        ([], _) => is_http10,
        ([host], None) => host_port(host).is_some(),
        ([host], Some((name, port))) => host_port(host).is_some_and(|(host, host_port)| {
            let ports = (host_port.or(default), port.or(default));
            host == name && (ports.0.is_none() || ports.0 == ports.1)
        }),
        _ => false,
    }
}

impl Model {
    pub(super) fn new(limit: usize) -> Model {
        let direction = || Direction {
            bytes: Vec::new(),
            at: 0,
            has_ended: false,
            place: Place::Head,
            is_last: false,
            may_persist: false,
            blanks: 0,
            messages: 0,
        };
        Model {
            limit,
            directions: [direction(), direction()],
            asked: Vec::new(),
            waits: false,
            is_opaque: false,
            is_bad: false,
            pieces: Default::default(),
        }
    }

    pub(super) fn read(&mut self, step: &Step) {
        let direction = &mut self.directions[step.direction as usize];
        direction.bytes.extend(&step.bytes);
        direction.has_ended |= step.is_end;
        self.go_on(step.direction);
        self.go_on(other(step.direction));
    }

    fn go_on(&mut self, direction: HttpDirection) {
        let index = direction as usize;
        while !self.is_bad && !self.is_opaque {
            let side = &self.directions[index];
            let (bytes, has_ended) = (side.bytes[side.at..].to_vec(), side.has_ended);
            let next = match side.place {
                Place::Head if direction == HttpDirection::Requests => self.request(&bytes),
                Place::Head => self.response(&bytes),
                _ => self.body(index, &bytes),
            };
            let (kind, len) = match next {
                Some(piece) => piece,
                None if self.is_opaque => break,
                None if !has_ended || self.is_bad => return,
                None => {
                    let place = self.directions[index].place;
                    match place {
                        Place::Over => return,
                        Place::Head => {
                            self.is_bad |= !bytes.is_empty() && !self.waits;
                            return;
                        }
                        Place::UntilClose => {
                            self.directions[index].place = Place::Over;
                            (Kind::End, 0)
                        }
                        _ => {
                            self.directions[index].place = Place::Over;
                            (Kind::Truncated, bytes.len())
                        }
                    }
                }
            };
            self.pieces[index].push(kind, len);
            self.directions[index].at += len;
            if direction == HttpDirection::Responses {
                // They may have waited for this response.
                self.go_on(HttpDirection::Requests);
            }
        }
        if self.is_opaque {
            self.pieces[index].push(Kind::Opaque, 0);
        }
    }

    /// Refuses. Nothing is read any more.
    fn bad<T>(&mut self) -> Option<T> {
        self.is_bad = true;
        None
    }

    /// No piece: either more bytes must come, or the section is complete or too long and therefore bad.
    fn incomplete<T>(&mut self, bytes: &[u8], limit: usize, end: &Regex) -> Option<T> {
        let within = &bytes[..bytes.len().min(limit)];
        self.is_bad |= within.len() == limit || end.is_match(within);
        None
    }

    fn request(&mut self, bytes: &[u8]) -> Option<(Kind, usize)> {
        let side = &mut self.directions[0];
        if bytes.is_empty() || self.waits {
            return None;
        }
        let begins = |other: &&&[u8]| other.starts_with(&bytes[..bytes.len().min(other.len())]);
        if side.messages == 0
            && side.blanks == 0
            && let Some(other) = OTHERS.iter().find(begins)
        {
            self.is_opaque = bytes.len() >= other.len();
            return None;
        }
        if bytes.starts_with(b"\r\n") {
            side.blanks += 1;
            return if side.blanks == 1 {
                Some((Kind::Framing(FramingKind::BlankLine), 2))
            } else {
                self.bad()
            };
        }
        let within = &bytes[..bytes.len().min(self.limit)];
        let Some(found) = REQUEST.captures(within).filter(|_| !side.is_last) else {
            return self.incomplete(bytes, self.limit, &SECTION_END[0]);
        };
        let Some((asked, place, is_last)) = good_request(&found) else { return self.bad() };
        if self.asked.len() == MAX_OUTSTANDING {
            return self.bad();
        }
        self.waits = asked.method == b"CONNECT";
        self.asked.push(asked);
        let side = &mut self.directions[0];
        (side.place, side.is_last, side.blanks) = (place, is_last, 0);
        side.messages += 1;
        Some((Kind::Request, found[0].len()))
    }

    fn response(&mut self, bytes: &[u8]) -> Option<(Kind, usize)> {
        if bytes.is_empty() {
            return None;
        }
        if self.directions[1].is_last {
            if self.directions[1].may_persist {
                return self.bad();
            }
            return Some((Kind::Framing(FramingKind::BehindLast), bytes.len()));
        }
        if self.asked.is_empty() {
            return self.bad();
        }
        let within = &bytes[..bytes.len().min(self.limit)];
        let Some(found) = RESPONSE.captures(within) else {
            return self.incomplete(bytes, self.limit, &SECTION_END[1]);
        };
        let (is_http10, fields) = (&found[1] == b"0", Fields::of(&found[3]));
        let Some(fields) = fields else { return self.bad() };
        let status: u16 = String::from_utf8_lossy(&found[2]).parse().expect("three digits");
        let asked = &self.asked[0];
        let Some(framing) = fields.framing(is_http10, false) else { return self.bad() };
        if framing == Some(Place::ChunkSize) && asked.is_http10 {
            return self.bad();
        }
        if status < 200 {
            let has_body = framing.is_some_and(|place| place != Place::End);
            let is_unasked = status == 101 && !asked.has_upgrade;
            if has_body || is_unasked || is_http10 || asked.is_http10 {
                return self.bad();
            }
        }
        let has_no_body = status < 200 || status == 204 || status == 304 || asked.method == b"HEAD";
        let place = if has_no_body { Place::End } else { framing.unwrap_or(Place::UntilClose) };
        let is_connect = asked.method == b"CONNECT";
        if status == 101 || (is_connect && status / 100 == 2) {
            self.is_opaque = true;
        } else if status >= 200 {
            self.asked.remove(0);
            self.waits &= !is_connect;
            self.directions[1].is_last = fields.is_last(is_http10) || place == Place::UntilClose;
            self.directions[1].may_persist = fields.names_keep_alive();
        }
        self.directions[1].place = place;
        let len = found[0].len();
        if self.is_opaque {
            self.pieces[1].push(Kind::Response, len);
            return None;
        }
        Some((Kind::Response, len))
    }

    fn body(&mut self, index: usize, bytes: &[u8]) -> Option<(Kind, usize)> {
        let place = self.directions[index].place;
        let available = |left: u64| usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        let (next, piece) = match place {
            Place::End => (Place::Head, (Kind::End, 0)),
            Place::UntilClose if !bytes.is_empty() => (place, (Kind::Body, bytes.len())),
            Place::Length(left) if !bytes.is_empty() => {
                let left_behind = left - available(left) as u64;
                let next = if left_behind == 0 { Place::End } else { Place::Length(left_behind) };
                (next, (Kind::Body, available(left)))
            }
            Place::ChunkData(left) if !bytes.is_empty() => {
                let left_behind = left - available(left) as u64;
                let next = if left_behind == 0 { Place::ChunkEnd } else { Place::ChunkData(left_behind) };
                (next, (Kind::Body, available(left)))
            }
            Place::ChunkSize => {
                let max = MAX_CHUNK_LINE[index];
                let within = &bytes[..bytes.len().min(max)];
                let Some(found) = CHUNK[index].captures(within) else {
                    return self.incomplete(bytes, max, &LINE_END);
                };
                let size = u64::from_str_radix(&String::from_utf8_lossy(&found[1]), 16).expect("16 digits");
                let (next, kind) = match size {
                    0 => (Place::Trailers, FramingKind::LastChunk),
                    _ => (Place::ChunkData(size), FramingKind::ChunkSize),
                };
                (next, (Kind::Framing(kind), found[0].len()))
            }
            Place::ChunkEnd if bytes.starts_with(b"\r\n") => {
                (Place::ChunkSize, (Kind::Framing(FramingKind::ChunkEnd), 2))
            }
            Place::ChunkEnd if index == 1 && bytes.starts_with(b"\n") => {
                (Place::ChunkSize, (Kind::Framing(FramingKind::ChunkEnd), 1))
            }
            Place::ChunkEnd => {
                self.is_bad = bytes.len() > 1 || bytes.first().is_some_and(|byte| *byte != b'\r');
                return None;
            }
            Place::Trailers => {
                let within = &bytes[..bytes.len().min(self.limit)];
                let Some(found) = TRAILERS[index].captures(within) else {
                    return self.incomplete(bytes, self.limit, &SECTION_END[index]);
                };
                let Some(fields) = Fields::of(&found[1]) else { return self.bad() };
                let refused = ["content-length", "transfer-encoding", "host", "connection"];
                let is_refused = |(name, _): &(String, _)| refused.contains(&name.as_str());
                if fields.0.len() > MAX_HEADERS || index == 0 && fields.0.iter().any(is_refused) {
                    return self.bad();
                }
                (Place::End, (Kind::Trailers, found[0].len()))
            }
            Place::UntilClose | Place::Length(_) | Place::ChunkData(_) | Place::Head | Place::Over => {
                return None;
            }
        };
        self.directions[index].place = next;
        Some(piece)
    }
}

/// The request of a head, the place behind it, and whether it is the last one; `None` if it is bad.
fn good_request(found: &Captures<'_>) -> Option<(Asked, Place, bool)> {
    let (method, target, is_http10) = (found[1].to_vec(), &found[2], &found[3] == b"0");
    let fields = Fields::of(&found[4])?;
    let framing = fields.framing(is_http10, true)?;
    let is_other_case = |name: &[u8]| method.eq_ignore_ascii_case(name) && method != name;
    let is_connect = method == b"CONNECT";
    let has_body = framing.is_some_and(|place| place != Place::End);
    if is_other_case(b"HEAD") || is_other_case(b"CONNECT") || (is_connect && has_body) {
        return None;
    }
    if !target_is_good(&method, target, &fields.all("host"), is_http10) {
        return None;
    }
    let has_upgrade = !is_http10 && !fields.all("upgrade").is_empty();
    // Some servers close behind these as well.
    let names_close = |value: &&[u8]| String::from_utf8_lossy(value).to_ascii_lowercase().contains("close");
    let is_last = fields.is_last(is_http10)
        || fields.all("proxy-connection").iter().any(names_close)
        || (is_http10 && !fields.all("expect").is_empty());
    Some((Asked { method, is_http10, has_upgrade }, framing.unwrap_or(Place::End), is_last))
}
