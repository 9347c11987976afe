//! Where a message ends, and what its headers say of the connection (RFC 9112, sections 6 and 9).

use super::byte_class::{is_address_byte, is_host_byte};
use super::head::{BodyFraming, HeaderLine, Headers, HttpVersion, Span, list_items};
use super::outstanding::RequestInfo;
use super::piece::HttpDirection;
use super::start_line::{Authority, RequestLine};
use super::unfit::HttpUnfit;

/// The headers of a message that say where it ends and whether another one follows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FramingHeaders {
    length: Option<u64>,
    is_chunked: bool,
    /// Host, of requests.
    host: Option<Span>,
    close: bool,
    keep_alive: bool,
    /// Some programs take it for `keep-alive`: Proxy-Connection, or `keep-alive` as a part of an option.
    names_keep_alive: bool,
    /// Some programs take the header Keep-Alive for it in HTTP/1.0.
    has_keep_alive_header: bool,
    /// Some proxies take it for `close`: Proxy-Connection.
    proxy_close: bool,
    has_expectation: bool,
    pub(crate) has_upgrade: bool,
}

impl FramingHeaders {
    /// Looks through the headers of a message. Of responses, clients read equal lengths as one, and the encoding where there is a length as well
    /// (RFC 9110, section 8.6; RFC 9112, section 6.3); servers read such requests differently.
    pub(crate) fn read(
        direction: HttpDirection,
        headers: &Headers<'_>,
        version: HttpVersion,
    ) -> Result<FramingHeaders, HttpUnfit> {
        let mut read = FramingHeaders::default();
        for line in headers.lines {
            read.header(direction, headers, line)?;
        }
        if read.is_chunked && version == HttpVersion::Http10 {
            return Err(HttpUnfit::EncodingInHttp10);
        }
        if read.is_chunked && read.length.take().is_some() && direction == HttpDirection::Requests {
            return Err(HttpUnfit::LengthAndEncoding);
        }
        Ok(read)
    }

    fn header(
        &mut self,
        direction: HttpDirection,
        headers: &Headers<'_>,
        line: &HeaderLine,
    ) -> Result<(), HttpUnfit> {
        let is_request = direction == HttpDirection::Requests;
        let (name, value) = (headers.text(line.name), headers.text(line.value));
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        match name.len() {
            6 if is(b"expect") => self.has_expectation = true,
            16 if is(b"proxy-connection") => {
                self.proxy_close |= contains(value, b"close");
                self.names_keep_alive |= contains(value, b"keep-alive");
            }
            4 if is_request && is(b"host") => once(&mut self.host, line.value).ok_or(HttpUnfit::Host)?,
            7 if is(b"upgrade") => self.has_upgrade = true,
            10 if is(b"connection") => self.connection(direction, value)?,
            10 if is(b"keep-alive") => self.has_keep_alive_header = true,
            14 if is(b"content-length") => {
                let length = decimal(value).ok_or(HttpUnfit::ContentLength)?;
                let is_equal = !is_request && headers.first(b"content-length") == Some(value);
                if self.length.replace(length).is_some() && !is_equal {
                    return Err(HttpUnfit::ContentLength);
                }
            }
            17 if is(b"transfer-encoding") => {
                if self.is_chunked || !value.eq_ignore_ascii_case(b"chunked") {
                    return Err(HttpUnfit::TransferEncoding);
                }
                self.is_chunked = true;
            }
            _ => {}
        }
        Ok(())
    }

    fn connection(&mut self, direction: HttpDirection, value: &[u8]) -> Result<(), HttpUnfit> {
        let is_request = direction == HttpDirection::Requests;
        self.names_keep_alive |= contains(value, b"keep-alive");
        for option in list_items(value) {
            let is = |known: &[u8]| option.eq_ignore_ascii_case(known);
            match option.len() {
                5 if is(b"close") => self.close = true,
                10 if is(b"keep-alive") => self.keep_alive = true,
                // A proxy removes the headers that are named here.
                14 | 17 if is(b"content-length") || is(b"transfer-encoding") => {
                    return Err(HttpUnfit::ConnectionOption);
                }
                4 if is_request && is(b"host") => return Err(HttpUnfit::ConnectionOption),
                // Programs search for it in the whole value, or take quotes away. Of a response, the border is the same to all of them.
                _ if is_request && contains(option, b"close") => return Err(HttpUnfit::ConnectionOption),
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether the sender closes behind the message (RFC 9112, section 9.3).
    pub(crate) fn closes(&self, version: HttpVersion) -> bool {
        self.close || (version == HttpVersion::Http10 && !self.keep_alive)
    }

    /// Whether some servers close behind the request: by Proxy-Connection, or since they do not ignore an expectation in HTTP/1.0 (RFC 9110,
    /// section 10.1.1).
    pub(crate) fn may_close(&self, version: HttpVersion) -> bool {
        self.closes(version) || self.proxy_close || (version == HttpVersion::Http10 && self.has_expectation)
    }

    /// Whether some clients keep the connection after a last response: Chromium takes the first of `keep-alive, close`, and
    /// `keep-alive` of Proxy-Connection in HTTP/1.0; curl takes any `keep-alive` in Connection in HTTP/1.0, and Python's
    /// `http.client` the header Keep-Alive.
    pub(crate) fn may_persist(&self, version: HttpVersion) -> bool {
        self.names_keep_alive || (version == HttpVersion::Http10 && self.has_keep_alive_header)
    }

    /// The body of a request.
    pub(crate) fn request_body(&self, info: RequestInfo) -> Result<BodyFraming, HttpUnfit> {
        let body = self.announced().unwrap_or(BodyFraming::None);
        if info.is_connect() && !matches!(body, BodyFraming::None | BodyFraming::Length(0)) {
            return Err(HttpUnfit::UnexpectedBody);
        }
        Ok(body)
    }

    /// The body of a response, by RFC 9112, section 6.3.
    pub(crate) fn response_body(&self, status: u16, request: RequestInfo) -> Result<BodyFraming, HttpUnfit> {
        let announced = self.announced();
        if status == 204 {
            // To all clients, whatever it announces.
            return Ok(BodyFraming::None);
        }
        if status < 200 {
            return match announced {
                None | Some(BodyFraming::Length(0)) => Ok(BodyFraming::None),
                Some(_) => Err(HttpUnfit::UnexpectedBody),
            };
        }
        if self.is_chunked && request.version() == HttpVersion::Http10 {
            return Err(HttpUnfit::EncodingInHttp10);
        }
        if request.is_head() || status == 304 {
            return Ok(BodyFraming::None);
        }
        Ok(announced.unwrap_or(BodyFraming::UntilClose))
    }

    fn announced(&self) -> Option<BodyFraming> {
        if self.is_chunked { Some(BodyFraming::Chunked) } else { self.length.map(BodyFraming::Length) }
    }

    /// The host of a request, without port, after a check of Host against the target (RFC 9112, sections 3.2 and 3.3).
    pub(crate) fn host(&self, headers: &Headers<'_>, line: &RequestLine) -> Result<Span, HttpUnfit> {
        let Some(host) = self.host else {
            if line.version == HttpVersion::Http11 {
                return Err(HttpUnfit::Host);
            }
            return Ok(match line.authority {
                Some(authority) => HostPort::of(headers, authority.span).ok_or(HttpUnfit::Target)?.host,
                None => Span { start: line.target.end, end: line.target.end },
            });
        };
        let named = HostPort::of(headers, host).ok_or(HttpUnfit::Host)?;
        let Some(Authority { span, default_port }) = line.authority else { return Ok(named.host) };
        let target = HostPort::of(headers, span).ok_or(HttpUnfit::Target)?;
        let is_same_host = headers.text(named.host).eq_ignore_ascii_case(headers.text(target.host));
        // CONNECT's target always has a port, and Host may leave out that of the scheme, which cannot be known.
        let is_same_port = match (named.port.or(default_port), target.port.or(default_port)) {
            (Some(named), Some(target)) => named == target,
            (None, Some(_)) | (None, None) => true,
            (Some(_), None) => false,
        };
        if is_same_host && is_same_port { Ok(target.host) } else { Err(HttpUnfit::HostDiffers) }
    }
}

/// Whether a text has a word in it, in any case.
fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word))
}

/// Names of trailers that say where a message ends or goes.
pub(crate) fn check_trailers(headers: &Headers<'_>) -> Result<(), HttpUnfit> {
    let refused: [&[u8]; 4] = [b"content-length", b"transfer-encoding", b"host", b"connection"];
    let is_refused = |line: &HeaderLine| {
        refused.into_iter().any(|name| headers.text(line.name).eq_ignore_ascii_case(name))
    };
    if headers.lines.iter().any(is_refused) { Err(HttpUnfit::TrailerName) } else { Ok(()) }
}

/// Whether a text can stand in Host: a host, perhaps with a port.
#[must_use]
pub fn is_host_and_port(text: &[u8]) -> bool {
    HostPort::read(text).is_some()
}

/// A host and what port is named with it.
struct HostPort {
    host: Span,
    port: Option<u16>,
}

impl HostPort {
    fn of(headers: &Headers<'_>, span: Span) -> Option<HostPort> {
        let (host_len, port) = HostPort::read(headers.text(span))?;
        Some(HostPort { host: Span { start: span.start, end: span.start + host_len as u32 }, port })
    }

    /// The bytes of the host, and the port, of `host`, `host:` or `host:port`; a host may be an IP address in brackets.
    fn read(text: &[u8]) -> Option<(usize, Option<u16>)> {
        let host_len = match text {
            [b'[', rest @ ..] => {
                let len = rest.iter().position(|byte| *byte == b']')?;
                rest[..len].iter().copied().all(is_address_byte).then_some(len + 2)?
            }
            _ => {
                let len = text.iter().position(|byte| *byte == b':').unwrap_or(text.len());
                text[..len].iter().copied().all(is_host_byte).then_some(len)?
            }
        };
        let port = match &text[host_len..] {
            [] | [b':'] => None,
            [b':', port @ ..] => Some(u16::try_from(decimal(port)?).ok()?),
            _ => return None,
        };
        Some((host_len, port))
    }
}

/// Notes what may come only once.
fn once<T>(place: &mut Option<T>, value: T) -> Option<()> {
    place.replace(value).is_none().then_some(())
}

/// A number of decimal digits only.
fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |sum, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}
