//! Checks texts that names of hosts are compared with: the server name of TLS, and the host of an HTTP request.

use std::net::Ipv6Addr;

/// The longest host name in bytes (RFC 1035, section 2.3.4), with a leading dot.
const MAX_HOST_NAME_BYTES: usize = 254;

/// The message of an error, and the remedy.
type HostError = (String, String);

/// Checks a text that the server name of a TLS client is compared with.
pub(super) fn server_name(text: &[u8]) -> Result<(), HostError> {
    if text.ends_with(b".") && text != b"." {
        let message = format!("`{}`: server names have no dot at the end (RFC 6066)", shown(text));
        return Err((message, "the name without it".into()));
    }
    name(text, "server names are sent in ASCII (RFC 6066)")
}

/// Checks a text that the host of an HTTP request is compared with.
pub(super) fn http_host(text: &[u8]) -> Result<(), HostError> {
    if let Some(address) = text.strip_prefix(b"[").and_then(|rest| rest.strip_suffix(b"]"))
        && let Ok(address) = std::str::from_utf8(address)
        && address.parse::<Ipv6Addr>().is_ok()
    {
        return Ok(());
    }
    let message = |what: &str| format!("`{}`: {what}", shown(text));
    if std::str::from_utf8(text).is_ok_and(|text| text.parse::<Ipv6Addr>().is_ok()) {
        return Err((message("requests have IPv6 addresses in brackets"), format!("\"[{}]\"", shown(text))));
    }
    if let Some(colon) = text.iter().rposition(|byte| *byte == b':')
        && (text[colon + 1..].iter().all(u8::is_ascii_digit) || text.contains(&b'/'))
    {
        return Err((
            message("neither scheme nor port of a request counts"),
            "the name of the host alone".into(),
        ));
    }
    if text.ends_with(b".") && text != b"." {
        return Err((
            message("a dot at the end of a host's name does not count"),
            "the name without it".into(),
        ));
    }
    name(text, "hosts are sent in ASCII")
}

fn shown(text: &[u8]) -> String {
    String::from_utf8_lossy(text).escape_debug().to_string()
}

/// Checks a name, or with a leading dot a domain.
fn name(text: &[u8], in_ascii: &str) -> Result<(), HostError> {
    let domain = text.strip_prefix(b".").unwrap_or(text);
    if text.starts_with(b"*.") {
        let message = format!("`{}`: a leading dot stands for the domain and all below it", shown(text));
        return Err((message, "`.example.com` for `*.example.com`".into()));
    }
    if !text.is_ascii() {
        return Err((format!("`{}`: {in_ascii}", shown(text)), "its form with `xn--`".into()));
    }
    let is_good = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let has_labels =
        domain.split(|byte| *byte == b'.').all(|label| !label.is_empty() && label.iter().all(is_good));
    if !has_labels || text.len() > MAX_HOST_NAME_BYTES {
        let message = format!("`{}` is no host name", shown(text));
        return Err((message, "a name such as `www.example.com`, or `.example.com`".into()));
    }
    Ok(())
}
