//! `mmb health`: probes the servers of load balancers, and tells the daemon which of them answer.
//!
//! A client of the control socket, so that the daemon opens no connections and runs no programs: the prober runs where it reaches the servers, as a
//! user of its own if the socket's group admits it. In each round it asks for the servers, probes all of them, and tells the health of each. What it
//! tells stays in force when it ends, and its state begins with what the daemon knows: a restart of either changes nothing.

mod probe;
mod verdicts;

use crate::cli::{Global, HealthArgs};
use crate::output;
use anyhow::ensure;
use mmb_language::Command;
use mmb_policy::printable::printable_lines;
use mmb_policy::{RuleId, ServerCommand, ServerName, ServerOrder};
use mmb_protocol::answer::{Answer, ServerLine};
use mmb_protocol::{Client, ClientError, DEFAULT_SOCKET, Request};
use probe::{Probe, ProbeFailure, ServerPlace};
use serde_json::json;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};
use verdicts::{ServerHealth, Thresholds};

/// Probes that run at the same time.
const PARALLEL_PROBES: usize = 128;

/// The time that the daemon has to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A server of a rule.
type RuleServer = (u32, ServerName);

type ProbeResult = Result<(), ProbeFailure>;

/// Checks servers until it is ended.
///
/// # Errors
/// The arguments do not tell where servers are; with `--once`, the daemon does not answer.
pub(crate) fn main(args: &HealthArgs, global: &Global) -> anyhow::Result<ExitCode> {
    ensure!(
        args.exec.is_some() || args.port.is_some() || args.address.is_some(),
        "where are the servers? give --port N, or --address ADDRESS if they are ports"
    );
    let socket = global.socket.as_deref().unwrap_or(Path::new(DEFAULT_SOCKET));
    let mut checker = Checker::new(args, socket, global.json);
    if args.once {
        return checker.once();
    }
    loop {
        let begun = Instant::now();
        checker.round();
        thread::sleep(args.interval.saturating_sub(begun.elapsed()));
    }
}

struct Checker<'a> {
    rules: &'a [u32],
    probe: Probe,
    place: ServerPlace,
    timeout: Duration,
    thresholds: Thresholds,
    socket: &'a Path,
    json: bool,
    client: Option<Client>,
    /// The daemon does not answer, which was told.
    is_lost: bool,
    /// There are no servers, which was told.
    has_none: bool,
    health: HashMap<RuleServer, ServerHealth>,
    /// Why servers cannot be probed, as it was told.
    faults: BTreeSet<String>,
}

impl<'a> Checker<'a> {
    fn new(args: &'a HealthArgs, socket: &'a Path, json: bool) -> Checker<'a> {
        let probe = match (&args.http, &args.exec) {
            (Some(path), _) => {
                Probe::Http { path: path.clone(), host: args.host.clone(), statuses: args.status }
            }
            (None, Some(program)) => {
                Probe::Exec { program: program.clone(), arguments: args.arguments.clone() }
            }
            (None, None) => Probe::Tcp,
        };
        Checker {
            rules: &args.rules,
            probe,
            place: ServerPlace { address: args.address, port: args.port },
            timeout: args.timeout,
            thresholds: Thresholds { rise: args.rise, fall: args.fall },
            socket,
            json,
            client: None,
            is_lost: false,
            has_none: false,
            health: HashMap::new(),
            faults: BTreeSet::new(),
        }
    }

    /// Probes every server once and prints the results.
    fn once(&mut self) -> anyhow::Result<ExitCode> {
        let servers: Vec<RuleServer> = self.servers()?.into_keys().collect();
        let mut has_failed = servers.is_empty();
        if has_failed && self.json {
            output::print_json(&json!({ "error": self.none() }));
        } else if has_failed {
            output::report_error(&self.none());
        }
        for ((rule, server), result) in self.probe_all(&servers) {
            has_failed |= result.is_err();
            let (health, reason) = match result {
                Ok(()) => (ServerOrder::Healthy.word(), None),
                Err(ProbeFailure::Server(reason)) => (ServerOrder::Failed.word(), Some(reason)),
                Err(ProbeFailure::Prober(reason)) => ("unknown", Some(reason)),
            };
            self.tell(rule, server, health, reason.as_deref());
        }
        Ok(if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    /// Probes every server and tells the daemon their health.
    fn round(&mut self) {
        let known = match self.servers() {
            Ok(servers) => servers,
            Err(error) => return self.lost(&error),
        };
        if std::mem::take(&mut self.is_lost) {
            output::report_error("the daemon answers again");
        }
        if known.is_empty() && !self.has_none {
            output::report_error(&self.none());
        }
        self.has_none = known.is_empty();
        self.health.retain(|server, _| known.contains_key(server));
        for (server, is_healthy) in &known {
            self.health.entry(*server).or_insert(ServerHealth::new(*is_healthy));
        }
        let servers: Vec<RuleServer> = known.into_keys().collect();
        let mut faults = BTreeSet::new();
        for ((rule, server), result) in self.probe_all(&servers) {
            let reason = match result {
                Ok(()) => None,
                Err(ProbeFailure::Server(reason)) => Some(reason),
                // The server stays what it was.
                Err(ProbeFailure::Prober(fault)) => {
                    if faults.insert(fault.clone()) && !self.faults.contains(&fault) {
                        output::report_error(&format!("{server} of rule {rule} cannot be checked: {fault}"));
                    }
                    continue;
                }
            };
            let thresholds = self.thresholds;
            let Some(health) = self.health.get_mut(&(rule, server)) else { continue };
            let changes = health.count(reason.is_none(), thresholds);
            let is_healthy = health.is_healthy;
            if changes {
                let health = if is_healthy { ServerOrder::Healthy } else { ServerOrder::Failed };
                self.tell(rule, server, health.word(), reason.as_deref());
            }
            if let Err(error) = self.report(rule, server, is_healthy, reason) {
                return self.lost(&error);
            }
        }
        self.faults = faults;
    }

    /// What is told if there is nothing to check.
    fn none(&self) -> String {
        match self.rules {
            [] => "no rule has servers (`lb`)".to_owned(),
            [rule] => format!("rule {rule} has no servers (`lb`)"),
            rules => {
                let rules: Vec<String> = rules.iter().map(u32::to_string).collect();
                format!("none of the rules {} has servers (`lb`)", rules.join(", "))
            }
        }
    }

    /// Records that the daemon does not answer, and tells it once.
    fn lost(&mut self, error: &ClientError) {
        self.client = None;
        if !std::mem::replace(&mut self.is_lost, true) {
            output::report_error(&format!("{error}; trying again"));
        }
    }

    /// Prints the health of a server.
    fn tell(&self, rule: u32, server: ServerName, health: &str, reason: Option<&str>) {
        if self.json {
            output::print_json(&json!({
                "rule": rule, "server": server.to_string(), "health": health, "reason": reason
            }));
            return;
        }
        let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
        // The reason may quote the server's answer.
        output::print(&printable_lines(&format!("{server} of rule {rule} is {health}{reason}\n")));
    }

    /// The servers that are to be checked, and whether the daemon takes them for healthy.
    fn servers(&mut self) -> Result<HashMap<RuleServer, bool>, ClientError> {
        let mut servers = HashMap::new();
        let rules = self.rules;
        self.ask("show servers --terse".to_owned(), |answer| {
            let Answer::Server(ServerLine { rule, server, weight: Some(_), health, .. }) = answer else {
                return;
            };
            if (rules.is_empty() || rules.contains(&rule))
                && let Ok(server) = server.parse()
            {
                servers.insert((rule, server), health.as_deref() != Some(ServerOrder::Failed.word()));
            }
        })?;
        Ok(servers)
    }

    /// Tells the daemon the health of a server. That the server is gone by now is no error.
    fn report(
        &mut self,
        rule: u32,
        server: ServerName,
        is_healthy: bool,
        reason: Option<String>,
    ) -> Result<(), ClientError> {
        let order = if is_healthy { ServerOrder::Healthy } else { ServerOrder::Failed };
        let rule = Some(RuleId(rule));
        let command = ServerCommand { order, server, rule, reason, kill: false };
        self.ask(Command::Server(command).to_string(), |_| ())
    }

    fn ask(&mut self, command: String, mut take: impl FnMut(Answer)) -> Result<(), ClientError> {
        if self.client.is_none() {
            self.client = Some(Client::connect(self.socket)?.with_timeout(PATIENCE)?);
        }
        let Some(client) = &mut self.client else { return Err(ClientError::Lost) };
        let asked = client.ask(&Request::Run(vec![command]), |answer| {
            take(answer);
            Ok::<(), ClientError>(())
        });
        asked.map(drop)
    }

    /// Probes servers, some at the same time.
    fn probe_all(&self, servers: &[RuleServer]) -> Vec<(RuleServer, ProbeResult)> {
        let mut results = Vec::with_capacity(servers.len());
        for some in servers.chunks(PARALLEL_PROBES) {
            thread::scope(|scope| {
                let probe = |server: RuleServer| self.probe.run(server, self.place, self.timeout);
                let start = |server: &RuleServer| {
                    let server = *server;
                    let running = thread::Builder::new().spawn_scoped(scope, move || probe(server));
                    (server, running)
                };
                let running: Vec<_> = some.iter().map(start).collect();
                results.extend(running.into_iter().map(|(server, running)| {
                    // Without a thread it is probed here.
                    let result = running.map_or_else(|_| Ok(probe(server)), |running| running.join());
                    (
                        server,
                        result.unwrap_or_else(|_| Err(ProbeFailure::Prober("the probe panicked".to_owned()))),
                    )
                }));
            });
        }
        results
    }
}
