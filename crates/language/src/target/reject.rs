//! `reject [ANSWER]`: drops the packet and tells its sender.

use super::info::{Slot, TargetArguments, TargetInfo};
use crate::diagnostic::Diagnostic;
use crate::report::CheckReport;
use crate::syntax::value::{ItemKind, ItemSyntax};
use crate::value;
use mmb_policy::rule::{Reject, Target};
use std::fmt::{Formatter, Result};

const TCP_RST: &str = "tcp-rst";
const ICMP: &str = "icmp";
const ICMP6: &str = "icmp6";

/// What the packets are answered with.
const ANSWERS: &[(&str, &str)] = &[
    (TCP_RST, "a RST to TCP segments; other packets are only dropped"),
    (ICMP, "destination unreachable, with a code of ICMP; without a code: port unreachable"),
    (ICMP6, "destination unreachable, with a code of ICMPv6; without a code: port unreachable"),
];

/// Codes of destination unreachable in ICMP (RFC 792, RFC 1122, RFC 1812), in the order of the numbers in [`ICMP_NUMBERS`].
const ICMP_CODES: &[(&str, &str)] = &[
    ("net-unreachable", "the network is unreachable (0)"),
    ("host-unreachable", "the host is unreachable (1)"),
    ("proto-unreachable", "the host does not speak the protocol (2)"),
    ("port-unreachable", "nobody listens on the port (3)"),
    ("net-prohibited", "communication with the network is prohibited (9)"),
    ("host-prohibited", "communication with the host is prohibited (10)"),
    ("admin-prohibited", "communication is prohibited (13)"),
];
const ICMP_NUMBERS: [u8; 7] = [0, 1, 2, PORT, 9, 10, 13];
/// Port unreachable in ICMP, and in ICMPv6.
const PORT: u8 = 3;
const PORT6: u8 = 4;

/// Codes of destination unreachable in ICMPv6 (RFC 4443 section 3.1, RFC 8883), by number.
const ICMP6_CODES: &[(&str, &str)] = &[
    ("no-route", "there is no route (0)"),
    ("admin-prohibited", "communication is prohibited (1)"),
    ("beyond-scope", "the address is beyond the scope of the source address (2)"),
    ("addr-unreachable", "the address is unreachable (3)"),
    ("port-unreachable", "nobody listens on the port (4)"),
    ("policy-fail", "the source address fails a policy (5)"),
    ("reject-route", "the route rejects (6)"),
];

pub(super) const INFO: TargetInfo = TargetInfo {
    arguments: "[tcp-rst|icmp [CODE]|icmp6 [CODE]]",
    help: "drops the packet and answers its sender (RST or ICMP error)",
    reference: "`reject` competes with `accept` and `drop` as `drop` does. A TCP segment is answered with a RST (RFC 9293, section 3.10.7.1), \
                another packet with ICMP or ICMPv6 \"port unreachable\". `reject tcp-rst` answers TCP only, `reject icmp CODE` and `reject icmp6 CODE` \
                answer all packets with this code, a number or a name; in packets of the other version of IP it becomes the code that RFC 7915 \
                translates it to. The answer comes from the address that the packet was sent to, by the port that it came in by, and passes no \
                rules. Never answered are RSTs, ICMP errors, later fragments, packets with a wrong checksum, and packets from or to addresses of \
                groups or of no single host; `set answer rate` limits the answers. Packets that are not answered are dropped all the same.",
    synonyms: &[],
    slots: &[
        Slot::Choice("answer", ANSWERS),
        Slot::Code { behind: ICMP, words: ICMP_CODES },
        Slot::Code { behind: ICMP6, words: ICMP6_CODES },
    ],
    clash,
    ..TargetInfo::new("reject", check)
};

fn check(arguments: &TargetArguments<'_>, report: &mut CheckReport<'_>) -> Option<Target> {
    let code = arguments.code.as_ref();
    Some(Target::Reject(match arguments.choice {
        None => Reject::Usual,
        Some(TCP_RST) => Reject::TcpRst,
        Some(ICMP6) => Reject::Icmp6(code.map_or(Some(PORT6), |code| icmp6_code(code, report))?),
        Some(_) => Reject::Icmp(code.map_or(Some(PORT), |code| icmp_code(code, report))?),
    }))
}

fn icmp_code(item: &ItemSyntax<'_>, report: &mut CheckReport<'_>) -> Option<u8> {
    let ItemKind::Word(word) = item.kind else { return None };
    if let Some(named) = ICMP_CODES.iter().position(|(name, _)| *name == word) {
        return ICMP_NUMBERS.get(named).copied();
    }
    match number(word, Reject::MAX_ICMP) {
        Some(Reject::FRAGMENTATION_NEEDED) => {
            let error = Diagnostic::new(item.span, "fragmentation needed (4) is about one link and its MTU");
            report.error(error.expected("another code; `set mtu-errors on` answers packets that are too large"));
            None
        }
        Some(code) => Some(code),
        None => {
            let error = Diagnostic::new(item.span, format!("`{word}` is no code of ICMP destination unreachable"));
            report.error(error.expected("a number 0 to 15"));
            None
        }
    }
}

fn icmp6_code(item: &ItemSyntax<'_>, report: &mut CheckReport<'_>) -> Option<u8> {
    let ItemKind::Word(word) = item.kind else { return None };
    let named = ICMP6_CODES.iter().position(|(name, _)| *name == word);
    let code = named.and_then(|code| u8::try_from(code).ok()).or_else(|| number(word, Reject::MAX_ICMP6));
    if code.is_none() {
        let error = Diagnostic::new(item.span, format!("`{word}` is no code of ICMPv6 destination unreachable"));
        report.error(error.expected("a number 0 to 8"));
    }
    code
}

fn number(word: &str, max: u8) -> Option<u8> {
    let number = value::number(word).ok()?;
    u8::try_from(number).ok().filter(|code| *code <= max)
}

fn clash(_: &Target, others: &[&Target]) -> Option<&'static str> {
    let any = |is: fn(&Target) -> bool| others.iter().any(|other| is(other));
    if any(|other| matches!(other, Target::Reject(_))) {
        return Some("`reject` is given twice");
    }
    if any(|other| matches!(other, Target::Drop(_))) {
        return Some("a rule drops or rejects, not both");
    }
    if any(|other| matches!(other, Target::Limit(_))) {
        return Some("a rule limits packets or rejects all of them, not both");
    }
    any(|other| matches!(other, Target::Accept)).then_some("a rule rejects or accepts, not both")
}

pub(crate) fn print(f: &mut Formatter<'_>, reject: Reject) -> Result {
    let named = |f: &mut Formatter<'_>, words: &[(&str, &str)], at: Option<usize>, code: u8| {
        match at.and_then(|at| words.get(at)) {
            Some((name, _)) => f.write_str(name),
            None => write!(f, "{code}"),
        }
    };
    f.write_str("reject")?;
    match reject {
        Reject::Usual => Ok(()),
        Reject::TcpRst => write!(f, " {TCP_RST}"),
        Reject::Icmp(code) => {
            write!(f, " {ICMP} ")?;
            named(f, ICMP_CODES, ICMP_NUMBERS.iter().position(|number| *number == code), code)
        }
        Reject::Icmp6(code) => {
            write!(f, " {ICMP6} ")?;
            named(f, ICMP6_CODES, Some(code.into()), code)
        }
    }
}
