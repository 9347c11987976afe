//! Translates the targets of rules to actions.

use super::names;
use super::save::{IptablesRule, IptablesTable, IptablesTarget, Opt};
use crate::cube::Family;
use crate::draft::{Effect, Rejection};
use crate::edit;
use crate::netfilter::{Action, ChainId, Edit, Pool, Reason, Step, Translation};
use std::collections::HashMap;
use std::net::IpAddr;

/// Targets that tell of packets, and the options with their texts.
const LOGGING: [(&str, &str); 3] =
    [("LOG", "log-prefix"), ("NFLOG", "nflog-prefix"), ("ULOG", "ulog-prefix")];

/// Targets that tell the kernel's own logs. The rules of a policy have no equivalent except their counters.
const TRACING: [&str; 2] = ["TRACE", "AUDIT"];

/// The answers of `REJECT` (iptables-extensions(8)), by their names as `iptables-save` writes them, and as they may be abbreviated.
const ANSWERS4: [(&str, &str, &str); 8] = [
    ("icmp-net-unreachable", "net-unreach", "reject icmp net-unreachable"),
    ("icmp-host-unreachable", "host-unreach", "reject icmp host-unreachable"),
    ("icmp-proto-unreachable", "proto-unreach", "reject icmp proto-unreachable"),
    ("icmp-port-unreachable", "port-unreach", "reject icmp port-unreachable"),
    ("icmp-net-prohibited", "net-prohib", "reject icmp net-prohibited"),
    ("icmp-host-prohibited", "host-prohib", "reject icmp host-prohibited"),
    ("icmp-admin-prohibited", "admin-prohib", "reject icmp admin-prohibited"),
    ("tcp-reset", "tcp-rst", "reject tcp-rst"),
];

/// Those of `ip6tables`.
const ANSWERS6: [(&str, &str, &str); 7] = [
    ("icmp6-no-route", "no-route", "reject icmp6 no-route"),
    ("icmp6-adm-prohibited", "adm-prohibited", "reject icmp6 admin-prohibited"),
    ("icmp6-addr-unreachable", "addr-unreach", "reject icmp6 addr-unreachable"),
    ("icmp6-port-unreachable", "port-unreach", "reject icmp6 port-unreachable"),
    ("icmp6-policy-fail", "policy-fail", "reject icmp6 policy-fail"),
    ("icmp6-reject-route", "reject-route", "reject icmp6 reject-route"),
    ("tcp-reset", "tcp-rst", "reject tcp-rst"),
];

/// Targets that change metadata of a packet, or what mmb does not change, and pass it to the next rule.
const GOING_ON: [&str; 12] = [
    "MARK",
    "CONNMARK",
    "CONNSECMARK",
    "SECMARK",
    "CLASSIFY",
    "SET",
    "TCPOPTSTRIP",
    "TOS",
    "ECN",
    "CHECKSUM",
    "TEE",
    "RATEEST",
];

/// What the targets of a dump refer to.
pub(super) struct TargetContext<'a> {
    pub(super) family: Family,
    /// The chains of the rule's table by name.
    pub(super) chains: &'a HashMap<&'a str, ChainId>,
    /// The MTU of the paths, if it is given.
    pub(super) path_mtu: Option<u16>,
    /// The rule's table.
    pub(super) table: &'a IptablesTable,
}

/// The last step of a rule, if it has a target.
pub(super) fn step(context: &TargetContext<'_>, rule: &IptablesRule) -> Option<Step> {
    let name = match &rule.target {
        IptablesTarget::None => return None,
        IptablesTarget::Jump(name) => name.as_str(),
        IptablesTarget::Goto(name) => {
            let to = context.chains.get(name.as_str()).map(|&chain| Action::Goto(chain));
            let unknown = || Action::Unknown(format!("the chain {name} is not known"), Effect::Either);
            return Some(Step::Act(to.unwrap_or_else(unknown)));
        }
    };
    if let Some(&chain) = context.chains.get(name) {
        return Some(Step::Act(Action::Jump(chain)));
    }
    Some(Step::Act(action(context, rule, name)))
}

fn action(context: &TargetContext<'_>, rule: &IptablesRule, name: &str) -> Action {
    let options = TargetOptions { family: context.family, options: &rule.target_options };
    let is_nat = context.table.name == "nat";
    let translated = |translation: Result<Translation, Reason>| match translation {
        Ok(translation) => Action::Translate(translation),
        Err(reason) => {
            let effect = if matches!(name, "DNAT" | "REDIRECT") { Effect::Either } else { Effect::None };
            Action::Unknown(reason, effect)
        }
    };
    let edited = |edit: Result<Edit, Reason>| match edit {
        Ok(edit) => Action::Edit(edit),
        Err(reason) => Action::Unknown(reason, Effect::None),
    };
    match name {
        "ACCEPT" => Action::Accept,
        "DROP" => Action::Drop,
        "REJECT" => Action::Reject(options.rejection()),
        "RETURN" => Action::Return,
        "SNAT" if is_nat => translated(options.to("to-source").map(Translation::Source)),
        "DNAT" if is_nat => translated(options.to("to-destination").map(Translation::Destination)),
        "MASQUERADE" if is_nat => translated(options.to_ports().map(Translation::Masquerade)),
        "REDIRECT" if is_nat => translated(options.to_ports().map(Translation::Redirect)),
        "DSCP" => edited(options.dscp()),
        "TTL" => edited(options.hops("ttl-set", "TTL")),
        "HL" => edited(options.hops("hl-set", "HL")),
        "TCPMSS" => edited(options.mss(context.path_mtu)),
        "CT" if options.has("helper") => Action::Unknown(
            "helpers are not translated: write `helper ftp` in the stateful rule of the control connections"
                .to_owned(),
            Effect::Stricter,
        ),
        "CT" | "NOTRACK" => Action::Unknown("mmb tracks all connections".to_owned(), Effect::Either),
        name if TRACING.contains(&name) => Action::Remark("nothing is traced, but rules count"),
        name if LOGGING.iter().any(|(log, _)| *log == name) => {
            let text = LOGGING.iter().find_map(|(_, option)| options.value(option));
            Action::Edit(edit::log(text.unwrap_or_default()))
        }
        name if GOING_ON.contains(&name) => {
            Action::Unknown(format!("a filter has no target {name}"), Effect::None)
        }
        name => Action::Unknown(format!("the target {name} is not known"), Effect::Either),
    }
}

/// The options of a target.
struct TargetOptions<'a> {
    family: Family,
    options: &'a [Opt],
}

impl TargetOptions<'_> {
    fn value(&self, name: &str) -> Option<&str> {
        self.options.iter().find(|option| option.name == name)?.values.first().map(String::as_str)
    }

    fn has(&self, name: &str) -> bool {
        self.options.iter().any(|option| option.name == name)
    }

    /// The answer of `REJECT`, if mmb knows it.
    fn rejection(&self) -> Option<Rejection> {
        let (answers, usual) = match self.family {
            Family::Ip6 => (&ANSWERS6[..], "icmp6-port-unreachable"),
            Family::Ip4 | Family::Frame => (&ANSWERS4[..], "icmp-port-unreachable"),
        };
        let asked = self.value("reject-with").unwrap_or(usual);
        let known = answers.iter().find(|(name, short, _)| [*name, *short].contains(&asked));
        known.map(|(.., target)| Rejection::of_both(target))
    }

    fn is_random(&self) -> bool {
        self.has("random") || self.has("random-fully")
    }

    /// `ADDRESS[-ADDRESS][:PORT[-PORT]]`, of IPv6 with brackets around the addresses if there are ports.
    fn to(&self, name: &str) -> Result<Pool, Reason> {
        let mut words = self.options.iter().filter(|option| option.name == name);
        let (Some(option), None) = (words.next(), words.next()) else {
            return Err(format!("--{name}: one pool is expected"));
        };
        let word = option.values.first().ok_or_else(|| format!("--{name}: its value is missing"))?;
        let wrong = || format!("--{name}: `{word}` is not known");
        let (addresses, ports) = match (self.family, word.strip_prefix('[')) {
            (Family::Ip6, Some(rest)) => {
                let (addresses, rest) = rest.split_once(']').ok_or_else(wrong)?;
                (addresses, rest.strip_prefix(':'))
            }
            (Family::Ip6 | Family::Frame, _) => (word.as_str(), None),
            (Family::Ip4, _) => match word.split_once(':') {
                Some((addresses, ports)) => (addresses, Some(ports)),
                None => (word.as_str(), None),
            },
        };
        let addresses = match addresses {
            "" => None,
            words => {
                let (first, last) = words.split_once('-').unwrap_or((words, words));
                let (first, last) = (first.parse::<IpAddr>(), last.parse::<IpAddr>());
                Some((first.map_err(|_| wrong())?, last.map_err(|_| wrong())?))
            }
        };
        let ports = ports.map(|ports| port_range(ports).ok_or_else(wrong)).transpose()?;
        if addresses.is_none() && ports.is_none() {
            return Err(wrong());
        }
        Ok(Pool { addresses, ports, is_random: self.is_random() })
    }

    fn to_ports(&self) -> Result<Pool, Reason> {
        let ports = match self.value("to-ports") {
            None => None,
            Some(word) => Some(port_range(word).ok_or_else(|| format!("--to-ports: `{word}` is not known"))?),
        };
        Ok(Pool { addresses: None, ports, is_random: self.is_random() })
    }

    fn dscp(&self) -> Result<Edit, Reason> {
        let value = match (self.value("set-dscp"), self.value("set-dscp-class")) {
            (Some(word), _) => names::number(word).filter(|&n| n < 64).and_then(|n| u8::try_from(n).ok()),
            (None, Some(word)) => names::dscp(word).and_then(|n| u8::try_from(n).ok()),
            (None, None) => None,
        };
        value
            .map(|value| edit::dscp(self.family, value))
            .ok_or_else(|| "DSCP: its value is not known".to_owned())
    }

    fn hops(&self, set: &str, target: &str) -> Result<Edit, Reason> {
        let value = self.value(set).and_then(|word| u8::try_from(names::number(word)?).ok());
        value
            .map(|value| edit::hops(self.family, value))
            .ok_or_else(|| format!("{target}: mmb writes fixed values, and neither adds nor subtracts"))
    }

    fn mss(&self, path_mtu: Option<u16>) -> Result<Edit, Reason> {
        let headers = if self.family == Family::Ip6 { 60 } else { 40 };
        let value = match self.value("set-mss") {
            Some(word) => names::number(word).and_then(|n| u16::try_from(n).ok()),
            None if self.has("clamp-mss-to-pmtu") => {
                let mtu = path_mtu
                    .ok_or("TCPMSS: the MTU of the path is not in the dump: name it with --mtu BYTES")?;
                mtu.checked_sub(headers)
            }
            None => None,
        };
        let value = value.filter(|&value| value > 0);
        let value = value.ok_or_else(|| "TCPMSS: its value is not known".to_owned())?;
        Ok(edit::mss(self.family, value, true))
    }
}

/// `PORT` or `PORT-PORT`. A base of a shifted range is not translated.
fn port_range(word: &str) -> Option<(u16, u16)> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first > 0 && first <= last).then_some((first, last))
}
