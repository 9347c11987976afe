//! The sources of rules and packets.

use super::arena::Arena;
use crate::cli::{BenchArgs, Global, TrafficArg};
use crate::output;
use anyhow::{Context, bail, ensure};
use mmb_client::policy_file;
use mmb_import::classbench::{self, ClassbenchOptions};
use mmb_io::pcap::{CaptureItem, CaptureReader};
use mmb_language::{Command, Print, parse_command, parse_policy};
use mmb_packet::LinkType;
use mmb_packet::proto::{TCP, UDP};
use mmb_policy::settings::FlowCacheUse;
use mmb_policy::{Policy, Rule, RuleId};
use mmb_workload::{Background, FlowPattern, Traffic, establish, pcap};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::{self, Stdio};

/// A policy, and the traffic for it.
pub(super) struct BenchSet {
    /// Its name in messages.
    pub(super) name: String,
    pub(super) policy: Policy,
    /// Rules of `--with`, from which no packets are drawn.
    beside: Vec<RuleId>,
    traffic: Traffic,
}

impl BenchSet {
    /// Returns the set of the command line. `None`: the policy has errors, which were reported.
    ///
    /// # Errors
    /// The set cannot be read or generated.
    pub(super) fn load(args: &BenchArgs, global: &Global) -> anyhow::Result<Option<BenchSet>> {
        let source = &args.source;
        let (name, policy, background, hit) = if let Some(path) = &source.rules {
            let Some(policy) = policy_file::load(path, global.json, &output::Terminal)? else {
                return Ok(None);
            };
            (path.display().to_string(), policy, Background::Mixed, 0.0)
        } else if let Some(path) = &source.filters {
            let name = path.display().to_string();
            let policy = filters(path).with_context(|| name.clone())?;
            (name, policy, Background::Uniform, 1.0)
        } else {
            let workload = args.workload().unwrap_or_else(|unfit| crate::cli::bad_usage(&unfit.to_string()));
            let workload = workload.context("there is no set to measure")?;
            let kind = workload.kind();
            (kind.name().to_owned(), workload.policy()?, workload.background(), kind.hit())
        };
        let mut policy = policy;
        let beside = args.with.iter().map(|text| add(&mut policy, text)).collect::<Result<_, _>>()?;
        if args.source.workload.is_some() {
            // Every packet may create a connection.
            let max = &mut policy.settings.connections.max;
            *max = (*max).max(args.packets);
        }
        let is_measured = args.write_rules.is_none();
        if is_measured {
            policy.settings.flow_cache = if args.flow_cache { FlowCacheUse::Auto } else { FlowCacheUse::Off };
        }
        let background = args.traffic.map_or(background, |traffic| traffic.into());
        let traffic =
            Traffic { background, hit: args.hit.unwrap_or(hit), flows: flows(args), seed: args.seed };
        Ok(Some(BenchSet { name, policy, beside, traffic }))
    }

    /// Returns the packets.
    ///
    /// # Errors
    /// The capture cannot be used.
    pub(super) fn packets(&self, args: &BenchArgs) -> anyhow::Result<Arena> {
        if let Some(path) = &args.pcap {
            return captured(path, args.packets).with_context(|| path.display().to_string());
        }
        let mut arena = Arena::default();
        self.frames(args).iter().for_each(|frame| arena.push(frame, LinkType::Ethernet));
        Ok(arena)
    }

    /// Writes rules and packets to the requested files.
    ///
    /// # Errors
    /// The system refused.
    pub(super) fn write(&self, args: &BenchArgs) -> anyhow::Result<()> {
        if let Some(path) = &args.write_rules {
            let write = |mut file: File| file.write_all(self.policy.text().to_string().as_bytes());
            emptied(path).and_then(write).with_context(|| path.display().to_string())?;
        }
        if let Some(path) = &args.write_pcap {
            let write =
                |file| pcap::write(&mut BufWriter::new(file), self.frames(args).iter().map(Vec::as_slice));
            emptied(path).and_then(write).with_context(|| path.display().to_string())?;
        }
        Ok(())
    }

    fn frames(&self, args: &BenchArgs) -> Vec<Vec<u8>> {
        let size = self.policy.rules.len() - self.beside.len();
        let is_drawn_from = |rule: &Rule| rule.id.is_none_or(|id| !self.beside.contains(&id));
        let rules = self.policy.rules.iter().filter(is_drawn_from);
        let made = self.traffic.frames(args.packets as usize, rules, size);
        let wanted = self.traffic.hit * made.headers as f64;
        if size > 0 && (made.drawn as f64) < 0.9 * wanted {
            output::report_error(&format!("note: only {} packets could be drawn from the rules", made.drawn));
        }
        let mut frames = made.frames;
        if self.policy.rules.iter().any(|rule| rule.stateful) {
            frames.iter_mut().for_each(|frame| establish(frame));
        }
        frames
    }
}

impl From<TrafficArg> for Background {
    fn from(traffic: TrafficArg) -> Background {
        match traffic {
            TrafficArg::Mixed => Background::Mixed,
            TrafficArg::Udp => Background::Plain(UDP, false),
            TrafficArg::Tcp => Background::Plain(TCP, false),
            TrafficArg::Udp6 => Background::Plain(UDP, true),
            TrafficArg::Tcp6 => Background::Plain(TCP, true),
            TrafficArg::Uniform => Background::Uniform,
            TrafficArg::Uniform6 => Background::Uniform6,
            TrafficArg::Various => Background::Various,
        }
    }
}

/// Adds a rule of the command line.
fn add(policy: &mut Policy, text: &str) -> anyhow::Result<RuleId> {
    let is_command = text.split_whitespace().next().is_some_and(|word| word.starts_with("add"));
    let line = if is_command { text.to_owned() } else { format!("add {text}") };
    match parse_command(&line) {
        Ok((Command::Add(rule), _)) => policy.add(&rule).with_context(|| line),
        Ok(_) => crate::cli::bad_usage(&format!("--with takes a rule, which `{text}` is not")),
        Err(errors) => crate::cli::bad_usage(&format!("--with '{text}': {}", errors[0].message)),
    }
}

/// Returns how the packets share headers.
fn flows(args: &BenchArgs) -> FlowPattern {
    match args.zipf {
        Some(flows) => FlowPattern::Zipf { flows: flows as usize, skew: args.skew },
        None if args.locality => FlowPattern::Trains,
        None => FlowPattern::Distinct,
    }
}

/// Returns the policy of a ClassBench filter file, plain or compressed.
fn filters(path: &Path) -> anyhow::Result<Policy> {
    let text = if path.extension().is_some_and(|extension| extension == "xz") {
        let unpacked =
            process::Command::new("xz").arg("-dc").arg("--").arg(path).stderr(Stdio::inherit()).output();
        let unpacked = unpacked.context("cannot run xz, which unpacks it")?;
        ensure!(unpacked.status.success(), "xz cannot unpack it");
        String::from_utf8(unpacked.stdout)?
    } else {
        policy_file::read(path)?
    };
    let filters = classbench::read(&text)?;
    // Some sets have ports of protocols without ports; a measurement uses every filter.
    let reading = ClassbenchOptions { portless_match: true, ..ClassbenchOptions::default() };
    let mut lines = String::new();
    let (mut prio, mut left_out) = (0, 0);
    for filter in &filters {
        let Ok(rules) = filter.constraints(reading) else {
            left_out += 1;
            continue;
        };
        // No two rules have the same priority, as in policies of `mmb import`.
        for rule in rules {
            lines += &format!("add prio {prio} {rule} drop\n");
            prio += 1;
        }
    }
    if left_out > 0 {
        output::report_error(&format!("note: {left_out} filters that match no packet are left out"));
    }
    let parsed = parse_policy(&lines);
    let (policy, _) =
        parsed.map_err(|errors| anyhow::anyhow!("a filter is no rule: {}", errors[0].message))?;
    Ok(policy)
}

/// Opens a file and truncates it.
fn emptied(path: &Path) -> io::Result<File> {
    let file = mmb_files::open_output(path)?;
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    Ok(file)
}

/// Returns the first packets of a capture.
fn captured(path: &Path, max: u32) -> anyhow::Result<Arena> {
    let mut reader = CaptureReader::open(File::open(path)?)?;
    let mut arena = Arena::default();
    loop {
        match reader.next_item() {
            Ok(Some(CaptureItem::Packet(packet))) => arena.push(packet.data, packet.meta.link),
            Ok(Some(CaptureItem::Block(_))) => {}
            Ok(None) => break,
            // The packets before the damage can be used.
            Err(error) if arena.len() > 0 => {
                output::report_error(&format!("{}: note: {error}", path.display()));
                break;
            }
            Err(error) => bail!(error),
        }
        if arena.len() == max as usize {
            break;
        }
    }
    ensure!(arena.len() > 0, "it holds no packets");
    Ok(arena)
}
