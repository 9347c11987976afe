//! Checked rules, on which the rest of mmb works. Text becomes a [`Rule`] through the parser and the checker,
//! and only through them, so that the invariants in the comments hold of every rule.

use crate::field::{Field, FieldId, FieldPlace, ones};
use crate::http::{HeaderName, Replacement};
use crate::limit::Limit;
use crate::pattern::PatternItem;

/// A rule's number: stable, never reused while the rule lives, at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleId(pub u32);

impl std::fmt::Display for RuleId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(&self.0, f)
    }
}

/// A rule's priority: 0 is best.
pub type Prio = u32;

/// The priority of a rule that names none.
pub const DEFAULT_PRIO: Prio = 100;

/// One `add` command, checked.
///
/// Invariants: it can match some packet; every value fits its field; `matches` and `targets` are not empty
/// (`all` is the empty list of matches with `all` understood, see [`Rule::matches`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The rule's number; `None` until a policy gives it one.
    pub id: Option<RuleId>,
    /// The rule's priority.
    pub prio: Prio,
    /// A name for people.
    pub name: Option<String>,
    /// `add-stateful`.
    pub stateful: bool,
    /// `draining`, of a stateful rule: it matches no packets, and only the connections that it has made keep it.
    pub draining: bool,
    /// The constraints, all of which must hold; empty for `all`.
    pub matches: Vec<Match>,
    /// The targets, in the order written.
    pub targets: Vec<Target>,
}

impl Rule {
    /// The constraints on packets, which the classifier decides. Those of a stateful rule select connections, by their first packets.
    pub fn header_matches(&self) -> impl Iterator<Item = &Match> {
        self.matches.iter().filter(|constraint| !constraint.is_of_stream())
    }

    /// The constraints on the bytes of connections, which are decided later.
    pub fn stream_matches(&self) -> impl Iterator<Item = &Match> {
        self.matches.iter().filter(|constraint| constraint.is_of_stream())
    }

    /// Whether the bytes of the rule's connections must be followed: it has a constraint on them or a target that acts on them. Beside a
    /// constraint, `drop` is decided by the bytes too.
    pub fn is_stream_rule(&self) -> bool {
        self.matches.iter().any(Match::is_of_stream) || self.targets.iter().any(Target::is_of_stream)
    }

    /// The lists that the rule's constraints name.
    pub fn lists(&self) -> impl Iterator<Item = &str> {
        self.matches.iter().flat_map(|constraint| constraint.test.patterns()).filter_map(|item| match item {
            PatternItem::List(name) => Some(name.as_str()),
            PatternItem::Text(_) | PatternItem::Regex(_) => None,
        })
    }
}

impl Rule {
    /// The named sets that the rule's constraints ask, each with its field.
    pub fn sets(&self) -> impl Iterator<Item = (&str, Field)> {
        self.matches.iter().filter_map(|constraint| match &constraint.test {
            Test::NamedSet(_, name) => Some((name.as_str(), constraint.field)),
            Test::Present | Test::Number(..) | Test::Port(..) | Test::Bytes(..) => None,
            Test::Patterns(_) | Test::Header(..) => None,
        })
    }
}

impl Match {
    /// Whether it is a constraint on the bytes of a connection.
    pub fn is_of_stream(&self) -> bool {
        matches!(self.field.info().place, FieldPlace::Stream(_))
    }
}

impl Test {
    /// The patterns, of [`Test::Patterns`] and [`Test::Header`] only.
    pub fn patterns(&self) -> &[PatternItem] {
        match self {
            Test::Patterns(items) | Test::Header(_, items) => items,
            Test::Present | Test::Number(..) | Test::Port(..) | Test::Bytes(..) | Test::NamedSet(..) => &[],
        }
    }
}

impl Target {
    /// Whether it acts on the bytes of a connection, whatever the rule's constraints. `drop` acts on them only beside constraints on them.
    pub fn is_of_stream(&self) -> bool {
        match self {
            Target::Alert(_) | Target::Close | Target::Digest | Target::Edit(_) | Target::Helper(_) => true,
            Target::Mod(..) | Target::AddOption(..) | Target::Strip(_) | Target::Keep(_) => false,
            Target::StripAll | Target::Drop(_) | Target::Reject(_) | Target::Accept | Target::Log(_) => false,
            Target::Limit(_) => false,
            Target::Map(..) | Target::Shuffle(..) | Target::Lb(..) => false,
        }
    }
}

/// One constraint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// `!` stood before it: it holds where the packet is of the implied protocol and the test fails.
    pub negated: bool,
    /// The field.
    pub field: Field,
    /// The test of the field.
    pub test: Test,
}

/// The test that a constraint makes on its field. A test of an [optional](crate::field::BareMeaning::Optional) field holds only
/// where the packet has it; with several options of one kind it holds if it holds for any of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// The field stands alone; [`crate::field::FieldInfo::alone`] says what that asks.
    Present,
    /// The field compared with numbers (addresses are numbers too). A set only with `==` and `!=`; a prefix or
    /// range only with those too.
    Number(Cond, NumberSet),
    /// The field compared with the elements of the policy's set of this name. The field is of
    /// [`ElementKind::of_field`](crate::sets::ElementKind::of_field).
    NamedSet(Equality, String),
    /// The name of a port, with `==` or `!=`; a set of names.
    Port(Equality, Vec<String>),
    /// Bytes: payload fields are compared as a prefix, option data as a whole. One string or a set.
    Bytes(Equality, Vec<Vec<u8>>),
    /// Some of the patterns is found in the field, which is of a stream; not empty.
    Patterns(Vec<PatternItem>),
    /// A message has a header field of this name, in whose value some of the patterns is found; without patterns: it has one.
    Header(HeaderName, Vec<PatternItem>),
}

/// The comparison of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cond {
    /// `==`, or membership of a set.
    Eq,
    /// `!=`, or no membership.
    Ne,
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `>`
    Gt,
    /// `>=`
    Ge,
}

/// The comparison of names and bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Equality {
    /// `==`
    Eq,
    /// `!=`
    Ne,
}

/// One value or several, as written; not empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberSet(pub Vec<NumberItem>);

/// A member of a [`NumberSet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NumberItem {
    /// One number.
    One(u128),
    /// Both ends included, `first <= last`.
    Range(u128, u128),
    /// A prefix of a field of `width` bits: the address (host bits zero) and the length in bits.
    Prefix(u128, u8),
}

/// An action of a rule on a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// `mod FIELD VALUE`
    Mod(Field, Write),
    /// `add OPTION [VALUE]`: the option's kind and data.
    AddOption(u8, Vec<u8>),
    /// `strip OPTION`
    Strip(u8),
    /// `strip ! OPTION`: options that no `Keep` of the rule names go.
    Keep(u8),
    /// `strip all`
    StripAll,
    /// `drop [PERCENT]`
    Drop(DropRate),
    /// `reject [ANSWER]`
    Reject(Reject),
    /// `accept`
    Accept,
    /// `limit RATE [burst N] [per FIELD]`: what is beyond is dropped. With [`LimitUnit::Connections`](crate::limit::LimitUnit), stateful rules only.
    Limit(Limit),
    /// `map FIELD VALUE`, stateful rules only.
    Map(Field, NumberSet),
    /// `shuffle FIELD [RANGE]`, stateful rules only.
    Shuffle(Field, Option<(u128, u128)>),
    /// `lb FIELD {VALUE, …} [METHOD]`, stateful rules only.
    Lb(Field, ServerList, LbMethod),
    /// `log ["TEXT"]`, not beside constraints on streams: packets are told, with this text.
    Log(Option<String>),
    /// `alert ["TEXT"]`, beside constraints on streams only: a match is told, with this text.
    Alert(Option<String>),
    /// `close`, beside constraints on streams only: both ends get a RST, and the connection goes silent.
    Close,
    /// `digest`, stateful rules only: bytes and CRC-32C of each direction are told when the connection ends.
    Digest,
    /// `mask`, and `mod`, `strip` and `add` on streams and HTTP: the bytes of the rule's connections change.
    Edit(StreamEdit),
    /// `helper NAME`, stateful rules only: the TCP connections of the rule announce others.
    Helper(Helper),
}

/// A protocol whose control connections announce data connections by their addresses and ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Helper {
    /// Active FTP: the commands PORT (RFC 959) and EPRT (RFC 2428).
    Ftp,
}

impl Helper {
    /// All of them.
    pub const ALL: [Helper; 1] = [Helper::Ftp];

    /// Its name in rules.
    pub const fn name(self) -> &'static str {
        match self {
            Helper::Ftp => "ftp",
        }
    }
}

/// A change of the bytes of connections, beside constraints on them only.
///
/// [`StreamEdit::Mask`], [`StreamEdit::Mod`] and [`StreamEdit::Strip`] act on what the rule's one constraint on their field finds; the field is
/// [writable](crate::field::Writable::Stream) as a stream. The others act on messages of HTTP: on every head that is complete when the rule's
/// constraints are met, or on every body of such a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamEdit {
    /// `mask FIELD ["TEXT"]`: the text stands in the place of what was found, repeated or cut to its length; no text: `*`.
    Mask(Field, Vec<u8>),
    /// `mod FIELD "TEXT"`: the text, at least one part, stands in the place of what was found.
    Mod(Field, Replacement),
    /// `strip FIELD`: what was found goes.
    Strip(Field),
    /// `mod http-header NAME "TEXT"`: the text stands in the place of the value of every such header field; `\m` is the old value.
    ModHeader(HeaderName, Replacement),
    /// `add http-header NAME "TEXT"`: a header field at the end of the head.
    AddHeader(HeaderName, Vec<u8>),
    /// `strip http-header NAME`: every such header field goes.
    StripHeader(HeaderName),
    /// `strip ! http-header NAME`: header fields that no `KeepHeader` of the rule names go, but for those of
    /// [`fixed_header`](crate::http::fixed_header).
    KeepHeader(HeaderName),
    /// `mod http-host "TEXT"`, `mod http-uri "TEXT"`: the text, at least one part, stands in the place of the whole host without its port (which
    /// stays unless the text has one), or of the request target without scheme and authority; `\m` is what was there.
    ModHttp(Field, Replacement),
    /// `add http-body "TEXT"`: bytes, at least one, at the body's end.
    AddBody(Vec<u8>),
}

impl StreamEdit {
    /// The field that it changes.
    pub fn field(&self) -> Field {
        match self {
            StreamEdit::Mask(field, _) | StreamEdit::Mod(field, _) | StreamEdit::Strip(field) => *field,
            StreamEdit::ModHttp(field, _) => *field,
            StreamEdit::ModHeader(..) | StreamEdit::AddHeader(..) => Field::new(FieldId::HttpHeader),
            StreamEdit::StripHeader(_) | StreamEdit::KeepHeader(_) => Field::new(FieldId::HttpHeader),
            StreamEdit::AddBody(_) => Field::new(FieldId::HttpBody),
        }
    }

    /// Whether it acts on what a constraint of the rule finds, and not on whole parts of messages.
    pub fn is_of_matches(&self) -> bool {
        match self {
            StreamEdit::Mask(..) | StreamEdit::Mod(..) | StreamEdit::Strip(_) => true,
            StreamEdit::ModHeader(..) | StreamEdit::AddHeader(..) => false,
            StreamEdit::StripHeader(_) | StreamEdit::KeepHeader(_) => false,
            StreamEdit::ModHttp(..) | StreamEdit::AddBody(_) => false,
        }
    }
}

/// The value that `mod` writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// A number that fits the field. In an option: written big-endian into the data that is there.
    Number(u128),
    /// Bytes: over the first bytes of a payload, or as the whole data of an option.
    Bytes(Vec<u8>),
}

/// A share of packets in thousandths of a per cent, at most [`DropRate::ALL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DropRate(pub u32);

impl DropRate {
    /// Every packet.
    pub const ALL: DropRate = DropRate(100_000);
}

/// The answer to the sender of a packet that `reject` drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Reject {
    /// A RST to a TCP segment, port unreachable to other packets.
    #[default]
    Usual,
    /// `tcp-rst`: a RST to a TCP segment, nothing to other packets.
    TcpRst,
    /// `icmp CODE`: destination unreachable with this code of ICMP, at most [`Reject::MAX_ICMP`]; of ICMPv6 what corresponds to it.
    Icmp(u8),
    /// `icmp6 CODE`: destination unreachable with this code of ICMPv6, at most [`Reject::MAX_ICMP6`]; of ICMP what corresponds to it.
    Icmp6(u8),
}

impl Reject {
    /// The greatest code of destination unreachable in ICMP (RFC 1812 section 5.2.7.1).
    pub const MAX_ICMP: u8 = 15;
    /// The greatest code of destination unreachable in ICMPv6 (RFC 4443 section 3.1, RFC 8883).
    pub const MAX_ICMP6: u8 = 8;
    /// The code of ICMP that says that fragmentation is needed: it has a meaning only with an MTU.
    pub const FRAGMENTATION_NEEDED: u8 = 4;
}

/// The values of an `lb` with their weights, in proportion to which they get connections. A value of weight 0 gets none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerList {
    /// The values.
    pub items: NumberSet,
    /// The weight of each item, at most [`ServerList::MAX_WEIGHT`]; empty if all are 1.
    weights: Vec<u8>,
}

impl ServerList {
    /// The greatest weight.
    pub const MAX_WEIGHT: u8 = 100;
    /// The most values of a list with weights.
    pub const MAX_WEIGHTED: u128 = 1000;

    /// A list of items, each with its weight; those without one have the weight 1.
    pub fn new(items: NumberSet, mut weights: Vec<u8>) -> ServerList {
        weights.resize(items.0.len(), 1);
        if weights.iter().all(|weight| *weight == 1) {
            weights.clear();
        }
        ServerList { items, weights }
    }

    /// The weight of each item; empty if all are 1.
    pub fn weights(&self) -> &[u8] {
        &self.weights
    }

    /// The weight of an item.
    pub fn weight(&self, item: usize) -> u8 {
        self.weights.get(item).copied().unwrap_or(1)
    }
}

/// The method by which a load balancer selects a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LbMethod {
    /// In turn.
    #[default]
    RoundRobin,
    /// By a consistent hash of the five-tuple.
    Hash,
    /// The one with the fewest connections.
    Least,
}

impl LbMethod {
    /// Every method, the default first.
    pub const ALL: [LbMethod; 3] = [LbMethod::RoundRobin, LbMethod::Hash, LbMethod::Least];
}

impl NumberItem {
    /// First and last number of the item for a field of `width` bits.
    pub fn bounds(self, width: u8) -> (u128, u128) {
        match self {
            NumberItem::One(n) => (n, n),
            NumberItem::Range(first, last) => (first, last),
            NumberItem::Prefix(first, len) => {
                let host = width - len;
                (first, first | ones(host))
            }
        }
    }
}
