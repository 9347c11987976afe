//! Texts that parts of heads are compared with.

use std::collections::HashSet;

/// The longest host name that a text can be (RFC 1035, section 2.3.4), with room.
const MAX_HOST_BYTES: usize = 256;

/// Texts that are a whole value or the beginning of one.
#[derive(Clone, Debug, Default)]
pub(crate) struct TextSet {
    texts: HashSet<Box<[u8]>>,
    /// The lengths that texts have, in ascending order.
    lengths: Vec<usize>,
}

impl TextSet {
    pub(crate) fn add(&mut self, text: &[u8]) {
        if self.texts.insert(text.into())
            && let Err(place) = self.lengths.binary_search(&text.len())
        {
            self.lengths.insert(place, text.len());
        }
    }

    /// Whether a text is the whole value.
    pub(crate) fn has(&self, value: &[u8]) -> bool {
        !self.texts.is_empty() && self.texts.contains(value)
    }

    /// Whether a value begins with a text.
    pub(crate) fn begins(&self, value: &[u8]) -> bool {
        let mut lengths = self.lengths.iter().take_while(|len| **len <= value.len());
        lengths.any(|len| self.texts.contains(&value[..*len]))
    }
}

/// Names of hosts: whole ones, and domains with all below them.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostSet {
    names: HashSet<Box<[u8]>>,
    domains: HashSet<Box<[u8]>>,
}

impl HostSet {
    /// Adds a name, or with a leading dot a domain.
    pub(crate) fn add(&mut self, text: &[u8]) {
        let key = mmb_http::name_key(text);
        match key.strip_prefix(b".") {
            Some(domain) => self.domains.insert(domain.into()),
            None => self.names.insert(key.into()),
        };
    }

    /// Whether a host, as a [`HostName`], is one of them.
    pub(crate) fn has(&self, host: &HostName) -> bool {
        let name = host.bytes();
        if name.is_empty() {
            return false;
        }
        if self.names.contains(name) {
            return true;
        }
        let starts = name.iter().enumerate().filter(|(_, byte)| **byte == b'.').map(|(at, _)| at + 1);
        !self.domains.is_empty()
            && std::iter::once(0).chain(starts).any(|start| self.domains.contains(&name[start..]))
    }
}

/// A host in lower case and without a dot at its end; empty if it is longer than names can be.
pub(crate) struct HostName {
    bytes: [u8; MAX_HOST_BYTES],
    len: usize,
}

impl HostName {
    pub(crate) fn new(host: &[u8]) -> HostName {
        let host = host.strip_suffix(b".").unwrap_or(host);
        let mut name = HostName { bytes: [0; MAX_HOST_BYTES], len: 0 };
        if let Some(bytes) = name.bytes.get_mut(..host.len()) {
            bytes.copy_from_slice(host);
            bytes.make_ascii_lowercase();
            name.len = host.len();
        }
        name
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_whole_or_beginnings() {
        let mut set = TextSet::default();
        for text in [&b"/a"[..], b"/abc", b"/a"] {
            set.add(text);
        }
        assert!(set.has(b"/a") && !set.has(b"/ab") && !set.has(b""));
        assert!(set.begins(b"/ab") && set.begins(b"/a") && !set.begins(b"/") && !set.begins(b"x/a"));
    }

    #[test]
    fn hosts_are_names_or_domains() {
        let mut set = HostSet::default();
        set.add(b"Example.com");
        set.add(b".a.org");
        let has = |host: &[u8]| set.has(&HostName::new(host));
        assert!(has(b"EXAMPLE.com.") && has(b"a.org") && has(b"x.y.A.org"));
        assert!(!has(b"www.example.com") && !has(b"ba.org") && !has(b"") && !has(&[b'a'; 300]));
    }
}
