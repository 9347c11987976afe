//! The command line of `mmb health`.

use clap::{ArgGroup, Args};
use std::net::IpAddr;
use std::time::Duration;

/// `mmb health`
#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("probe").required(true).args(["tcp", "http", "exec"]),
    group = ArgGroup::new("where").args(["port", "address"]),
    override_usage = "mmb health [--rule ID]… (--tcp|--http PATH) --port N [OPTIONS]\n       \
                      mmb health [--rule ID]… --exec PROGRAM [OPTIONS] [-- ARGUMENT…]",
    after_help = "\
It asks the daemon for the servers of the rules, and probes all of them in each interval, from where it runs. \
It tells the daemon `server healthy` or `server failed`: a server that has failed gets no new connections while others do (docs/balancing.md). \
If the daemon is not there it goes on and tries again; what it has told stays in force when it ends.
A program is run with ARGUMENTs and the server as the last one, and with MMB_SERVER and MMB_RULE in its environment; exit status 0 is a pass."
)]
pub(crate) struct HealthArgs {
    /// Check the servers of this rule; can be given several times; without it, those of all rules
    #[arg(long = "rule", value_name = "ID", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rules: Vec<u32>,
    /// A server passes if it accepts a TCP connection
    #[arg(long)]
    pub(crate) tcp: bool,
    /// A server passes if it answers GET PATH with a status of --status
    #[arg(long, value_name = "PATH", value_parser = path)]
    pub(crate) http: Option<String>,
    /// A server passes if this program ends with the exit status 0
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) exec: Option<String>,
    /// The port of servers that are addresses
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: Option<u16>,
    /// The address of servers that are ports
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) address: Option<IpAddr>,
    /// The Host of an HTTP request; without it, the address and the port
    #[arg(long, value_name = "NAME", requires = "http", value_parser = host)]
    pub(crate) host: Option<String>,
    /// The statuses of HTTP that pass, as N or N-M
    #[arg(long, value_name = "STATUS", default_value = "200-399", value_parser = statuses)]
    pub(crate) status: (u16, u16),
    /// The time from one probe of a server to the next
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    pub(crate) interval: Duration,
    /// A probe that takes longer fails
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub(crate) timeout: Duration,
    /// A failed server is healthy after so many passes in a row
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rise: u32,
    /// A healthy server has failed after so many failures in a row
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) fall: u32,
    /// Probe each server once, print the results, and tell the daemon nothing; the exit status is 1 if one fails
    #[arg(long)]
    pub(crate) once: bool,
    /// Arguments of the program
    #[arg(last = true, value_name = "ARGUMENT", requires = "exec")]
    pub(crate) arguments: Vec<String>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.parse::<f64>().ok().filter(|seconds| (0.05..=3600.0).contains(seconds));
    number.map(Duration::from_secs_f64).ok_or_else(|| "expected seconds from 0.05 to 3600".to_owned())
}

fn statuses(text: &str) -> Result<(u16, u16), String> {
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    let status = |text: &str| text.parse().ok().filter(|status| (100..=599).contains(status));
    match (status(low), status(high)) {
        (Some(low), Some(high)) if low <= high => Ok((low, high)),
        _ => Err("expected a status from 100 to 599, or a range of them as 200-299".to_owned()),
    }
}

fn path(text: &str) -> Result<String, String> {
    let is_path = text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic());
    if is_path {
        Ok(text.to_owned())
    } else {
        Err("expected a path from / on, in ASCII without blanks".to_owned())
    }
}

fn host(text: &str) -> Result<String, String> {
    let is_host = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    if is_host { Ok(text.to_owned()) } else { Err("expected a name in ASCII without blanks".to_owned()) }
}
