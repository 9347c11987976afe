//! `mmb import`: policies from the filters of other programs.
//!
//! A reader ([`classbench`], [`iptables`]) takes a file apart. What its filters match becomes [`cube::PacketCube`]s, which
//! are exact; [`language`] says them in rules, and a [`draft::PolicyDraft`] gathers those with ascending priorities, so that the
//! first match of the original is the best priority of the policy. What cannot be said is listed, on standard
//! error and as a comment at its place, and the exit status tells of it.

pub(crate) mod classbench;
mod cube;
mod draft;
mod iptables;
mod language;
mod set;

use crate::cli::{
    ActionArg, ClassbenchArgs, FamilyArg, FlagsArg, Global, ImportFiles, ImportFrom, IptablesArgs,
    PortlessArg,
};
use crate::output;
use anyhow::{Context, bail};
use classbench::{ClassbenchFilter, ClassbenchOptions};
use cube::Family;
use draft::{Effect, LeftOut, PolicyDraft, Remarks};
use mmb_client::policy_file::{self, name};
use serde_json::json;
use std::path::Path;
use std::process::ExitCode;

/// How a file that is compressed with xz begins.
const XZ: [u8; 6] = *b"\xfd7zXZ\0";

/// Translates a file.
///
/// # Errors
/// The file cannot be read or is not what it is said to be, or the policy cannot be written.
pub(crate) fn main(from: &ImportFrom, global: &Global) -> anyhow::Result<ExitCode> {
    let (files, draft) = match from {
        ImportFrom::Classbench(args) => (&args.files, from_classbench(args)?),
        ImportFrom::Iptables(args) => (&args.files, from_iptables(args)?),
    };
    finish(files, &draft, global)
}

fn from_classbench(args: &ClassbenchArgs) -> anyhow::Result<PolicyDraft> {
    let text = read(&args.files.file)?;
    let filters = classbench::read(&text).with_context(|| name(&args.files.file))?;
    let reading = ClassbenchOptions {
        portless_match: args.portless == PortlessArg::Always,
        flags_in_upper_byte: args.tcp_flags == FlagsArg::UpperByte,
    };
    let mut draft = PolicyDraft::default();
    draft.comment(&format!("{} filters of {}, the best first", filters.len(), name(&args.files.file)));
    add_filters(&mut draft, &filters, reading, args.action);
    Ok(draft)
}

fn from_iptables(args: &IptablesArgs) -> anyhow::Result<PolicyDraft> {
    let text = read(&args.files.file)?;
    let family = args.family.map(|family| match family {
        FamilyArg::Ip4 => Family::Ip4,
        FamilyArg::Ip6 => Family::Ip6,
    });
    let mut draft = PolicyDraft::default();
    iptables::translate(&text, args.chain.name(), family, &mut draft)
        .with_context(|| name(&args.files.file))?;
    Ok(draft)
}

/// Adds the rules of filters, in their order.
fn add_filters(
    draft: &mut PolicyDraft,
    filters: &[ClassbenchFilter],
    reading: ClassbenchOptions,
    action: ActionArg,
) {
    for (index, filter) in filters.iter().enumerate() {
        let target = match action {
            ActionArg::Drop => "drop",
            ActionArg::Accept => "accept",
            ActionArg::Alternate => ["accept", "drop"][index % 2],
        };
        let added = filter.constraints(reading).and_then(|constraints| {
            if constraints.len() > 1 {
                draft.comment(&format!("line {}: {} rules", filter.line, constraints.len()));
            }
            draft.add(&constraints, target, Remarks::default())
        });
        if let Err(reason) = added {
            let effect = match target {
                _ if reason == classbench::NO_PACKET => Effect::None,
                "drop" => Effect::Looser,
                _ => Effect::Stricter,
            };
            draft.leave_out(LeftOut { line: filter.line, text: filter.to_string(), reason, effect });
        }
    }
}

/// Writes the policy and tells what it lacks.
fn finish(files: &ImportFiles, draft: &PolicyDraft, global: &Global) -> anyhow::Result<ExitCode> {
    let complete = draft.left_out.is_empty();
    if !global.json {
        for note in &draft.notes {
            output::complain(note);
        }
        for left_out in &draft.left_out {
            output::complain(&left_out.to_string());
        }
    }
    if files.strict && !complete {
        bail!(
            "{} left out, and nothing written since --strict is given",
            count(draft.left_out.len(), "item")
        );
    }
    match &files.output {
        Some(path) => std::fs::write(path, draft.text()).with_context(|| path.display().to_string())?,
        None if global.json => {}
        None => output::print(draft.text()),
    }
    if global.json {
        let mut answer = json!({
            "rules": draft.rules,
            "left_out": draft.left_out,
            "effect": draft.effect(),
            "notes": draft.notes,
        });
        if files.output.is_none() {
            answer["policy"] = json!(draft.text());
        }
        output::print_json(&answer);
    } else if !complete {
        let left_out = count(draft.left_out.len(), "item");
        output::complain(&format!("{left_out} left out: {}", draft.effect()));
    }
    Ok(if complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn read(path: &Path) -> anyhow::Result<String> {
    policy_file::read(path).with_context(|| match is_xz(path) {
        true => format!("{0}: it is compressed; use `xz -dc {0} | mmb import … -`", name(path)),
        false => name(path),
    })
}

/// Whether a file is compressed with xz. Standard input has been read by now.
fn is_xz(path: &Path) -> bool {
    use std::io::Read;
    let mut magic = [0; XZ.len()];
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic));
    read.is_ok() && magic == XZ
}
