//! The table of settings: what `set NAME VALUE` takes.
//!
//! The parser, completion, help, `save` and the reference are made from [`SETTINGS`]. A name is one word or several: those
//! of one subject begin alike and stand together.

use crate::settings::{
    FlowCacheUse, HttpEncodings, HttpNoTransform, HttpUnfit, InvalidPackets, LimitSettings, NatFiltering,
    Offload, Pickup, Poll, PortsPerHost, Settings, StreamHoldOver, StreamUnfit, StreamUrgent,
    StreamsPerSource, Zone,
};

/// One setting. Its value is a number; of words, the place of the word.
#[derive(Debug)]
pub struct SettingInfo {
    /// Its name.
    pub name: &'static str,
    /// Its values.
    pub values: Values,
    /// One line of help.
    pub help: &'static str,
    get: fn(&Settings) -> u32,
    /// The value is one of `values`.
    put: fn(&mut Settings, u32),
}

/// The values that a setting may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// A number in this range.
    Number(u32, u32),
    /// A number of seconds in this range.
    Seconds(u32, u32),
    /// A number of milliseconds in this range.
    Milliseconds(u32, u32),
    /// A number of units of 1,024 bytes in this range.
    Kibibytes(u32, u32),
    /// A number of units of 1,048,576 bytes in this range.
    Mebibytes(u32, u32),
    /// One of these words; each with a line of help.
    Words(&'static [(&'static str, &'static str)]),
    /// This word, which is 0, or a number from 1 to this one.
    WordOr(&'static [(&'static str, &'static str); 1], u32),
}

/// The longest timeout: a week.
const LONGEST_S: u32 = 7 * 24 * 60 * 60;

macro_rules! timeout {
    ($name:literal, $field:ident, $help:literal) => {
        SettingInfo {
            name: $name,
            values: Values::Seconds(1, LONGEST_S),
            help: concat!("lifetime of a connection without packets: ", $help),
            get: |settings| settings.connections.timeouts.$field,
            put: |settings, seconds| settings.connections.timeouts.$field = seconds,
        }
    };
}

macro_rules! switch {
    ($name:literal, $field:ident, $help:literal) => {
        SettingInfo {
            name: $name,
            values: Values::Words(OFF_ON),
            help: $help,
            get: |settings| settings.connections.$field.into(),
            put: |settings, n| settings.connections.$field = n != 0,
        }
    };
}

/// Every setting.
pub static SETTINGS: &[SettingInfo] = &[
    SettingInfo {
        name: "ip6-max-headers",
        values: Values::Number(1, 64),
        help: "the limit of IPv6 extension headers in one packet; packets with more are dropped (ip6-chain-too-long)",
        get: |settings| settings.ip6_max_headers.into(),
        put: |settings, n| settings.ip6_max_headers = n as u8,
    },
    SettingInfo {
        name: "poll",
        values: Values::Words(&[
            ("adaptive", "sleeps with increasing delays"),
            ("spin", "never sleeps: lowest delay, a whole core for each worker"),
        ]),
        help: "the way in which an idle worker waits",
        get: |settings| settings.poll as u32,
        put: |settings, n| settings.poll = nth(&Poll::ALL, n),
    },
    SettingInfo {
        name: "offload",
        values: Values::Words(&[
            ("auto", "the kernel forwards settled flows of kernel interfaces, as far as it can"),
            ("off", "every packet passes a worker"),
        ]),
        help: "whether the kernel forwards packets of flows whose verdict is settled; off at the start also selects AF_XDP for kernel interfaces",
        get: |settings| settings.offload as u32,
        put: |settings, n| settings.offload = nth(&Offload::ALL, n),
    },
    SettingInfo {
        name: "flow-cache",
        values: Values::Words(&[
            ("auto", "they do where that takes fewer cycles than the search for the rules"),
            ("off", "every packet is searched for"),
        ]),
        help: "whether workers remember which rules the packets of a flow match",
        get: |settings| settings.flow_cache as u32,
        put: |settings, n| settings.flow_cache = nth(&FlowCacheUse::ALL, n),
    },
    SettingInfo {
        name: "answer rate",
        values: Values::WordOr(&[("off", "no limit")], 1_000_000),
        help: "the most answers a second of each kind, over all workers: packets of `reject`, packets of `mtu-errors`, and RSTs of connections \
               that rules on streams end; up to a twentieth of them, at least 10, may come at once (RFC 1812, section 4.3.2.8, RFC 4443, section 2.4)",
        get: |settings| settings.answers.rate.unwrap_or(0),
        put: |settings, n| settings.answers.rate = Some(n).filter(|n| *n > 0),
    },
    SettingInfo {
        name: "mtu-errors",
        values: Values::Words(OFF_ON),
        help: "tells the sender of a packet that exceeds the MTU of the output port the MTU: fragmentation needed for IPv4 with DF \
               (RFC 1191), packet too big for IPv6 (RFC 4443)",
        get: |settings| settings.answers.mtu_errors.into(),
        put: |settings, n| settings.answers.mtu_errors = n != 0,
    },
    SettingInfo {
        name: "conn max",
        values: Values::Number(1, 100_000_000),
        help: "the limit of connections; at the limit, closed and then half-open ones are evicted, and if there are none, new ones are refused \
               (conn-full)",
        get: |settings| settings.connections.max,
        put: |settings, n| settings.connections.max = n,
    },
    SettingInfo {
        name: "conn pickup",
        values: Values::Words(&[
            ("loose", "also data and acknowledgements: connections from before a start of mmb continue"),
            ("strict", "only a SYN, of SCTP an INIT; others are dropped (conn-not-syn)"),
        ]),
        help: "the packets of TCP and SCTP that may begin a connection",
        get: |settings| settings.connections.pickup as u32,
        put: |settings, n| settings.connections.pickup = nth(&Pickup::ALL, n),
    },
    SettingInfo {
        name: "conn per-source",
        values: Values::WordOr(&[("off", "no limit")], 100_000_000),
        help: "the most open connections that one source address has begun, over all workers, counted from when this is set; IPv6 \
               addresses are counted by their first 64 bits; beyond, new ones are refused (conn-per-source)",
        get: |settings| settings.connections.per_source.unwrap_or(0),
        put: |settings, n| settings.connections.per_source = Some(n).filter(|n| *n > 0),
    },
    SettingInfo {
        name: "conn invalid",
        values: Values::Words(&[
            ("pass", "they pass and change nothing"),
            ("drop", "they are dropped (conn-invalid)"),
        ]),
        help: "the treatment of packets that a connection's state does not allow: out of window, with TCP flags that no end sends, with a \
               wrong checksum where the state would change, or packets that begin no connection where a stateful rule would make one",
        get: |settings| settings.connections.invalid as u32,
        put: |settings, n| settings.connections.invalid = nth(&InvalidPackets::ALL, n),
    },
    SettingInfo {
        name: "conn zone",
        values: Values::Words(&[
            (
                "vlan",
                "each VLAN of a wire: packets of a connection have the same outermost two VLAN identifiers",
            ),
            ("wire", "each wire: tags do not count"),
        ]),
        help: "the scope of connections: packets with the same addresses and ports in different scopes are of different connections",
        get: |settings| settings.connections.zone as u32,
        put: |settings, n| settings.connections.zone = nth(&Zone::ALL, n),
    },
    switch!(
        "conn same-port",
        same_port,
        "accepts replies on the port on which a connection's first packet arrived (one-armed routers)"
    ),
    timeout!("timeout tcp-syn", tcp_syn, "TCP and SCTP that is being opened"),
    timeout!("timeout tcp-established", tcp_established, "TCP and SCTP that is open"),
    timeout!("timeout tcp-fin", tcp_fin, "TCP and SCTP that one end or both are closing"),
    timeout!("timeout tcp-time-wait", tcp_time_wait, "TCP and SCTP that both ends have closed"),
    timeout!("timeout tcp-reset", tcp_reset, "TCP and SCTP that was reset"),
    timeout!("timeout udp", udp, "UDP and UDP-Lite that was answered"),
    timeout!("timeout udp-unreplied", udp_unreplied, "UDP and UDP-Lite that was not answered yet"),
    timeout!("timeout icmp", icmp, "ICMP and ICMPv6 queries"),
    timeout!("timeout other", other, "other protocols"),
    SettingInfo {
        name: "nat filtering",
        values: Values::Words(&[
            ("endpoint-independent", "all"),
            ("address-dependent", "hosts to which the inside host has sent from there"),
            (
                "address-and-port-dependent",
                "addresses and ports to which the inside host has sent from there",
            ),
        ]),
        help: "the remote hosts that may send to an outside address and port of a translation (RFC 4787 REQ-8)",
        get: |settings| settings.connections.nat_filtering as u32,
        put: |settings, n| settings.connections.nat_filtering = nth(&NatFiltering::ALL, n),
    },
    SettingInfo {
        name: "nat ports-per-host",
        values: Values::WordOr(
            &[("share", "64 or a 256th of the ports, and beyond that no more than are still free")],
            65_536,
        ),
        help: "the most ports of a protocol that one host holds of the pool that a rule maps to (RFC 6888 REQ-4): an inside \
               address, of IPv6 all with the same first 64 bits; beyond, its new connections are refused (nat-host-limit)",
        get: |settings| match settings.connections.nat_ports_per_host {
            PortsPerHost::Share => 0,
            PortsPerHost::AtMost(max) => max,
        },
        put: |settings, n| {
            settings.connections.nat_ports_per_host =
                if n == 0 { PortsPerHost::Share } else { PortsPerHost::AtMost(n) };
        },
    },
    switch!(
        "nat parity",
        nat_parity,
        "keeps even ports even and odd ports odd where there is a choice (RFC 4787 REQ-4)"
    ),
    switch!(
        "nat contiguity",
        nat_contiguity,
        "gives neighbouring ports of an inside address neighbouring outside ports where they are free"
    ),
    SettingInfo {
        name: "stream max",
        values: Values::Number(1, 10_000_000),
        help: "the limit of connections whose bytes are followed, over all workers; beyond, connections are treated as `stream unfit` says",
        get: |settings| settings.streams.max,
        put: |settings, n| settings.streams.max = n,
    },
    SettingInfo {
        name: "stream per-source",
        values: Values::WordOr(
            &[(
                "share",
                "64 or a 256th of `stream max`, whichever is more; beyond that only while the source has fewer streams than there are free places",
            )],
            10_000_000,
        ),
        help: "the most streams of one source: connections that one address has begun and whose bytes are followed, over all workers, in \
               equal parts; IPv6 addresses are counted by their first 64 bits; further connections are treated as `stream unfit` says",
        get: |settings| match settings.streams.per_source {
            StreamsPerSource::Share => 0,
            StreamsPerSource::AtMost(max) => max,
        },
        put: |settings, n| {
            settings.streams.per_source =
                if n == 0 { StreamsPerSource::Share } else { StreamsPerSource::AtMost(n) };
        },
    },
    SettingInfo {
        name: "stream memory",
        values: Values::Mebibytes(1, 1 << 20),
        help: "the memory in MiB for bytes of streams that are kept, over all workers, in equal parts",
        get: |settings| settings.streams.memory_mib,
        put: |settings, n| settings.streams.memory_mib = n,
    },
    SettingInfo {
        name: "stream window",
        values: Values::Kibibytes(64, 16_384),
        help: "the most unacknowledged bytes in KiB that are kept of each direction where a rule may close, drop or edit; the windows that receivers advertise are lowered to it",
        get: |settings| settings.streams.window_kib,
        put: |settings, n| settings.streams.window_kib = n,
    },
    SettingInfo {
        name: "stream reorder",
        values: Values::Kibibytes(16, 16_384),
        help: "the most bytes in KiB that are kept of each direction until the bytes before them arrive",
        get: |settings| settings.streams.reorder_kib,
        put: |settings, n| settings.streams.reorder_kib = n,
    },
    SettingInfo {
        name: "stream hold",
        values: Values::Milliseconds(0, 10_000),
        help: "the time in ms for which bytes that may be the beginning of a match are held back where a rule edits; 0: they are not",
        get: |settings| settings.streams.hold_ms,
        put: |settings, n| settings.streams.hold_ms = n,
    },
    SettingInfo {
        name: "stream hold-over",
        values: Values::Words(&[
            ("pass", "they pass unedited"),
            ("close", "their connection is closed: both ends get a RST"),
        ]),
        help: "the treatment of bytes that were held back for `stream hold`",
        get: |settings| settings.streams.hold_over as u32,
        put: |settings, n| settings.streams.hold_over = nth(&StreamHoldOver::ALL, n),
    },
    SettingInfo {
        name: "stream unfit",
        values: Values::Words(&[
            ("pass", "they pass, and stream rules do not see their bytes"),
            ("close", "they are closed: both ends get a RST"),
            ("drop", "their packets are dropped"),
        ]),
        help: "the treatment of connections whose bytes cannot be followed: picked up midway, with TCP-AO or MD5 signatures, or without room for them",
        get: |settings| settings.streams.unfit as u32,
        put: |settings, n| settings.streams.unfit = nth(&StreamUnfit::ALL, n),
    },
    SettingInfo {
        name: "stream urgent",
        values: Values::Words(&[
            ("clear", "the URG flag and the pointer are cleared: the data is a part of the stream"),
            ("pass", "they pass as they are"),
            ("drop", "segments with the URG flag are dropped"),
        ]),
        help: "the treatment of TCP's urgent data where a rule may close, drop or edit",
        get: |settings| settings.streams.urgent as u32,
        put: |settings, n| settings.streams.urgent = nth(&StreamUrgent::ALL, n),
    },
    SettingInfo {
        name: "http head",
        values: Values::Kibibytes(1, 64),
        help: "the limit of a message's head in KiB; a connection with a longer one is treated as `http unfit` says",
        get: |settings| settings.http.head_kib,
        put: |settings, n| settings.http.head_kib = n,
    },
    SettingInfo {
        name: "http unfit",
        values: Values::Words(&[
            (
                "close",
                "they are closed: both ends get a RST; connections whose rules only report pass instead",
            ),
            ("pass", "they pass, and rules on HTTP see no more of their messages"),
        ]),
        help: "the treatment of connections with a message whose borders are not certain, or whose head is too long or takes more than 5 s",
        get: |settings| settings.http.unfit as u32,
        put: |settings, n| settings.http.unfit = nth(&HttpUnfit::ALL, n),
    },
    SettingInfo {
        name: "http encodings",
        values: Values::Words(&[
            ("strip", "they are taken from the request, so that the body is plain and whole"),
            ("pass", "they stay, and rules do not see into encoded bodies"),
        ]),
        help: "the treatment of Accept-Encoding, Range and If-Range in requests whose response's body a rule searches",
        get: |settings| settings.http.encodings as u32,
        put: |settings, n| settings.http.encodings = nth(&HttpEncodings::ALL, n),
    },
    SettingInfo {
        name: "http no-transform",
        values: Values::Words(&[
            ("obey", "their bodies stay as they are"),
            ("ignore", "their bodies are edited like others"),
        ]),
        help: "the treatment of messages with `Cache-Control: no-transform` (RFC 9110, section 7.7)",
        get: |settings| settings.http.no_transform as u32,
        put: |settings, n| settings.http.no_transform = nth(&HttpNoTransform::ALL, n),
    },
    SettingInfo {
        name: "log rate",
        values: Values::WordOr(&[("unlimited", "all of them")], 1_000_000),
        help: "the most packets in a second that are told of each rule with `log`, over all workers; the number of the others is told once a second",
        get: |settings| settings.log.rate,
        put: |settings, n| settings.log.rate = n,
    },
    SettingInfo {
        name: "log burst",
        values: Values::Number(1, 1_000_000),
        help: "the number of packets of a rule with `log` that are told at once before `log rate` limits them",
        get: |settings| settings.log.burst,
        put: |settings, n| settings.log.burst = n,
    },
    SettingInfo {
        name: "limit keys",
        values: Values::Number(LimitSettings::MIN_KEYS, 1 << 24),
        help: "the keys that each rule with `limit … per` keeps apart, up to the next power of two, for 64 bytes each; beyond, those with \
               the least use are forgotten and begin anew (limit-keys)",
        get: |settings| settings.limits.keys,
        put: |settings, n| settings.limits.keys = n,
    },
];

const OFF_ON: &[(&str, &str)] = &[("off", "no"), ("on", "yes")];

/// One of the few values that there are.
fn nth<T: Copy>(all: &[T], n: u32) -> T {
    all[(n as usize).min(all.len() - 1)]
}

/// One `set`, checked: which setting and its new value, as a change of [`Settings`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its place in [`SETTINGS`].
    row: usize,
    value: u32,
}

impl Setting {
    /// The setting's row in the table.
    pub fn info(&self) -> &'static SettingInfo {
        &SETTINGS[self.row]
    }

    /// The new value as a number, unless it is a word.
    pub fn number(&self) -> Option<u32> {
        self.word().is_none().then_some(self.value)
    }

    /// The new value as it is written.
    pub fn value(&self) -> String {
        self.word().map_or_else(|| self.value.to_string(), str::to_owned)
    }

    fn word(&self) -> Option<&'static str> {
        match self.info().values {
            Values::Words(words) => Some(nth(words, self.value).0),
            Values::WordOr([(word, _)], _) if self.value == 0 => Some(word),
            Values::WordOr(..) | Values::Number(..) | Values::Seconds(..) | Values::Milliseconds(..) => None,
            Values::Kibibytes(..) | Values::Mebibytes(..) => None,
        }
    }

    /// Makes the change.
    pub fn apply(&self, settings: &mut Settings) {
        (self.info().put)(settings, self.value);
    }
}

impl std::fmt::Display for Setting {
    /// As `set` takes it: `conn max 1000`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.info().name, self.value())
    }
}

impl SettingInfo {
    /// The values that are words, with their help.
    pub fn words(&self) -> &'static [(&'static str, &'static str)] {
        match self.values {
            Values::Words(words) => words,
            Values::WordOr(word, _) => word,
            Values::Number(..) | Values::Seconds(..) | Values::Milliseconds(..) => &[],
            Values::Kibibytes(..) | Values::Mebibytes(..) => &[],
        }
    }

    /// The change of this setting to `value`, of words the place of the word; `None` if it is out of range.
    pub fn set_to(&'static self, value: u32) -> Option<Setting> {
        let fits = match self.values {
            Values::Number(min, max)
            | Values::Seconds(min, max)
            | Values::Milliseconds(min, max)
            | Values::Kibibytes(min, max)
            | Values::Mebibytes(min, max) => (min..=max).contains(&value),
            Values::WordOr(_, max) => value <= max,
            Values::Words(words) => (value as usize) < words.len(),
        };
        if !fits {
            return None;
        }
        let row = SETTINGS.iter().position(|info| info.name == self.name)?;
        Some(Setting { row, value })
    }
}

impl Values {
    /// The values as a text for people.
    pub fn describe(&self) -> String {
        match self {
            Values::Number(min, max) => format!("{min} to {max}"),
            Values::Seconds(min, max) => format!("{min} to {max} seconds"),
            Values::Milliseconds(min, max) => format!("{min} to {max} ms"),
            Values::Kibibytes(min, max) => format!("{min} to {max} KiB"),
            Values::Mebibytes(min, max) => format!("{min} to {max} MiB"),
            Values::WordOr([(word, _)], max) => format!("{word} or 1 to {max}"),
            Values::Words(words) => {
                let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                match words.split_last() {
                    Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
                    _ => words.concat(),
                }
            }
        }
    }
}

/// The setting of that name.
pub fn named(name: &str) -> Option<&'static SettingInfo> {
    SETTINGS.iter().find(|info| info.name == name)
}

impl Settings {
    /// The settings in force, in the order of the table.
    pub fn all(&self) -> impl Iterator<Item = Setting> + '_ {
        SETTINGS.iter().enumerate().map(|(row, info)| Setting { row, value: (info.get)(self) })
    }

    /// Those that differ from the defaults.
    pub fn changed(&self) -> impl Iterator<Item = Setting> + '_ {
        let default = Settings::default();
        let differs = move |setting: &Setting| setting.value != (setting.info().get)(&default);
        self.all().filter(differs)
    }
}
