//! Changes of packets, and logs, that both front ends know.

use crate::cube::{Dim, Family};
use crate::netfilter::{Edit, EditRule};
use crate::set;
use mmb_language::Print;
use mmb_policy::Target;

/// Writes a differentiated services codepoint.
pub(crate) fn dscp(family: Family, value: u8) -> Edit {
    let rules = match family {
        Family::Ip4 | Family::Frame => {
            vec![EditRule { target: format!("mod ip-dscp {value}"), ..EditRule::default() }]
        }
        // The language has one field for the codepoint and ECN: a rule for each value of ECN keeps it.
        Family::Ip6 => (0..4u8)
            .map(|ecn| EditRule {
                only: vec![(Dim::Tos, set::masked(ecn.into(), 3, 8))],
                target: format!("mod ip6-traffic-class {}", value << 2 | ecn),
                ..EditRule::default()
            })
            .collect(),
    };
    Edit { writes: Some(Dim::Tos), logs: false, rules }
}

/// Writes a time to live.
pub(crate) fn hops(family: Family, value: u8) -> Edit {
    let field = if family == Family::Ip6 { "ip6-hop-limit" } else { "ip-ttl" };
    let rule = EditRule { target: format!("mod {field} {value}"), ..EditRule::default() };
    Edit { writes: Some(Dim::Ttl), logs: false, rules: vec![rule] }
}

/// Lowers the maximum segment size of TCP, and adds the option to SYNs without one and without data, if `adds`
/// (`net/netfilter/xt_TCPMSS.c`): with the least size that every host takes (RFC 9293, section 3.7.1; RFC 8200, section 8.3), or less.
pub(crate) fn mss(family: Family, value: u16, adds: bool) -> Edit {
    let lower = EditRule {
        condition: format!("tcp-opt-mss > {value}"),
        target: format!("mod tcp-opt-mss {value}"),
        ..EditRule::default()
    };
    let default = if family == Family::Ip6 { 1220 } else { 536 };
    let add = EditRule {
        condition: "! tcp-opt-mss ! tcp-payload".to_owned(),
        target: format!("add tcp-opt-mss {}", value.min(default)),
        ..EditRule::default()
    };
    Edit { writes: None, logs: false, rules: if adds { vec![lower, add] } else { vec![lower] } }
}

/// The longest text of a log in bytes. Those of the kernel are shorter.
const MAX_TEXT_CHARS: usize = 256;

/// Tells of packets, with a text if there is one. What the language has no text for is left out of it.
pub(crate) fn log(text: &str) -> Edit {
    let text: String = text.trim().chars().filter(|c| matches!(c, ' '..='~')).take(MAX_TEXT_CHARS).collect();
    let target = Target::Log(Some(text).filter(|text| !text.is_empty()));
    let rule = EditRule { target: target.text().to_string(), ..EditRule::default() };
    Edit { writes: None, logs: true, rules: vec![rule] }
}
