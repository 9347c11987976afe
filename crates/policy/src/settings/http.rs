//! Settings of HTTP: the bound of a head, and the treatment of messages that are not understood or should not be changed.
//!
//! Plain values, which the rooms that follow streams read. [`crate::setting_table`] holds the table of names and ranges.

/// `set http …`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpSettings {
    /// `http head`: the most bytes of a message's head in KiB.
    pub head_kib: u32,
    /// `http unfit`: the treatment of connections whose messages are not understood for certain.
    pub unfit: HttpUnfit,
    /// `http encodings`: the treatment of requests for encoded responses and parts of them.
    pub encodings: HttpEncodings,
    /// `http no-transform`: the treatment of messages that forbid changes.
    pub no_transform: HttpNoTransform,
}

impl Default for HttpSettings {
    fn default() -> Self {
        HttpSettings {
            head_kib: 16,
            unfit: HttpUnfit::default(),
            encodings: HttpEncodings::default(),
            no_transform: HttpNoTransform::default(),
        }
    }
}

/// The treatment of connections with a message that a strict parser refuses, or a head that is longer than `http head` or takes more than 5 s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum HttpUnfit {
    /// Both ends get a RST.
    #[default]
    Close,
    /// They pass, and no rule on HTTP sees their further messages.
    Pass,
}

impl HttpUnfit {
    /// In the order of their words in the table of settings.
    pub const ALL: [HttpUnfit; 2] = [HttpUnfit::Close, HttpUnfit::Pass];
}

/// The treatment of the header fields by which a client asks for an encoded response or a part of one, where a rule is about the response's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum HttpEncodings {
    /// Accept-Encoding, Range and If-Range are taken from requests, so that bodies are plain and whole.
    #[default]
    Strip,
    /// They stay: rules do not see into encoded bodies.
    Pass,
}

impl HttpEncodings {
    /// In the order of their words in the table of settings.
    pub const ALL: [HttpEncodings; 2] = [HttpEncodings::Strip, HttpEncodings::Pass];
}

/// The treatment of bodies of messages with `Cache-Control: no-transform` (RFC 9110, section 7.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum HttpNoTransform {
    /// They stay as they are.
    #[default]
    Obey,
    /// They are edited like others.
    Ignore,
}

impl HttpNoTransform {
    /// In the order of their words in the table of settings.
    pub const ALL: [HttpNoTransform; 2] = [HttpNoTransform::Obey, HttpNoTransform::Ignore];
}
