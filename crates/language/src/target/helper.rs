//! `helper NAME`: follows a protocol whose control connections announce data connections.

use super::info::{Slot, TargetArguments, TargetInfo};
use crate::report::CheckReport;
use mmb_policy::rule::{Helper, Target};
use std::fmt::{Formatter, Result};

/// The words of helpers, with their help.
const HELPERS: &[(&str, &str)] = &[(Helper::Ftp.name(), "active FTP: PORT and EPRT")];

pub(super) const INFO: TargetInfo = TargetInfo {
    arguments: "ftp",
    stateful: true,
    help: "expects the data connections that control connections announce",
    reference: "`helper ftp` follows the control connections of FTP that the rule makes. With the commands PORT (RFC 959) and EPRT (RFC 2428) a client \
                tells the server where to connect to (active FTP). The data connection from the server is expected for a minute: it gets the rules of \
                its control connection, and its first packet is `ct related`. Where a rule translates the client, the address and the port in the \
                command become translated ones. A command that names another host than the client, or a port below 1024, announces nothing. \
                Passive FTP of clients needs no helper.",
    synonyms: &["alg", "ftp", "inspect"],
    slots: &[Slot::Name("helper", HELPERS)],
    clash: |_, others| {
        let again = others.iter().any(|other| matches!(other, Target::Helper(_)));
        again.then_some("`helper` is given twice")
    },
    ..TargetInfo::new("helper", check)
};

fn check(arguments: &TargetArguments<'_>, _: &mut CheckReport<'_>) -> Option<Target> {
    let chosen = |helper: &Helper| Some(helper.name()) == arguments.choice;
    Helper::ALL.into_iter().find(chosen).map(Target::Helper)
}

pub(crate) fn print(f: &mut Formatter<'_>, helper: Helper) -> Result {
    write!(f, "helper {}", helper.name())
}
