//! Requests that wait for their responses.

use super::head::HttpVersion;
use super::unfit::HttpUnfit;

/// The most requests that wait for their responses.
pub const MAX_OUTSTANDING: usize = 64;

const HEAD: u8 = 1 << 0;
const CONNECT: u8 = 1 << 1;
const HTTP10: u8 = 1 << 2;
const UPGRADE: u8 = 1 << 3;

/// What the reading of a response needs to know of its request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestInfo(u8);

impl RequestInfo {
    pub(crate) fn new(method: &[u8], version: HttpVersion, has_upgrade: bool) -> RequestInfo {
        let method = match method {
            b"HEAD" => HEAD,
            b"CONNECT" => CONNECT,
            _ => 0,
        };
        let version = if version == HttpVersion::Http10 { HTTP10 } else { 0 };
        RequestInfo(method | version | if has_upgrade { UPGRADE } else { 0 })
    }

    pub(crate) fn is_head(self) -> bool {
        self.0 & HEAD != 0
    }

    pub(crate) fn is_connect(self) -> bool {
        self.0 & CONNECT != 0
    }

    pub(crate) fn has_upgrade(self) -> bool {
        self.0 & UPGRADE != 0
    }

    pub(crate) fn version(self) -> HttpVersion {
        if self.0 & HTTP10 != 0 { HttpVersion::Http10 } else { HttpVersion::Http11 }
    }
}

/// The requests of a connection that wait for their responses, oldest first.
#[derive(Clone, Debug)]
pub(crate) struct Outstanding {
    first: u8,
    count: u8,
    ring: [RequestInfo; MAX_OUTSTANDING],
}

impl Default for Outstanding {
    fn default() -> Self {
        Outstanding { first: 0, count: 0, ring: [RequestInfo::default(); MAX_OUTSTANDING] }
    }
}

impl Outstanding {
    pub(crate) fn push(&mut self, info: RequestInfo) -> Result<(), HttpUnfit> {
        let count = usize::from(self.count);
        if count == MAX_OUTSTANDING {
            return Err(HttpUnfit::TooManyRequests);
        }
        self.ring[(usize::from(self.first) + count) % MAX_OUTSTANDING] = info;
        self.count += 1;
        Ok(())
    }

    pub(crate) fn oldest(&self) -> Option<RequestInfo> {
        (self.count > 0).then(|| self.ring[usize::from(self.first) % MAX_OUTSTANDING])
    }

    pub(crate) fn answer_oldest(&mut self) {
        self.first = (self.first + 1) % MAX_OUTSTANDING as u8;
        self.count = self.count.saturating_sub(1);
    }

    pub(crate) fn count(&self) -> usize {
        usize::from(self.count)
    }
}
