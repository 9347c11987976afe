//! `mmb import`: writes the policies that `mmb_import` makes of the filters of other programs.
//!
//! mmb lists everything that a policy leaves out, on standard error and as comments in the policy; the exit status is 1 then.

use crate::cli::{
    ActionArg, ClassbenchArgs, FamilyArg, FlagsArg, Global, HookArg, HostAddress, HostArgs, ImportFiles,
    ImportFrom, IptablesArgs, NftablesArgs, PortlessArg,
};
use crate::output;
use anyhow::{Context, bail};
use mmb_client::file::{FileContent, FileWriter};
use mmb_client::policy_file::{self, name};
use mmb_import::classbench::{self, ClassbenchOptions};
use mmb_import::iptables::{self, IpSets, IptablesOptions};
use mmb_import::nftables::{self, NftablesOptions, PacketPath};
use mmb_import::{Family, HostAddresses, ImportVerdict, PolicyDraft, count};
use serde_json::json;
use std::path::Path;
use std::process::ExitCode;

/// The first bytes of a file that is compressed with xz.
const XZ: [u8; 6] = *b"\xfd7zXZ\0";

/// Translates a file.
///
/// # Errors
/// The file cannot be read or has another format, or the policy cannot be written.
pub(crate) fn main(from: &ImportFrom, global: &Global) -> anyhow::Result<ExitCode> {
    let (files, draft) = match from {
        ImportFrom::Classbench(args) => (&args.files, from_classbench(args)?),
        ImportFrom::Iptables(args) => (&args.files, from_iptables(args)?),
        ImportFrom::Nftables(args) => (&args.files, from_nftables(args)?),
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
    classbench::add(&mut draft, &filters, reading, |index| match args.action {
        ActionArg::Drop => ImportVerdict::Drop,
        ActionArg::Accept => ImportVerdict::Accept,
        ActionArg::Alternate => [ImportVerdict::Accept, ImportVerdict::Drop][index % 2],
    });
    Ok(draft)
}

fn from_iptables(args: &IptablesArgs) -> anyhow::Result<PolicyDraft> {
    let text = read(&args.files.file)?;
    let family = args.family.map(|family| match family {
        FamilyArg::Ip4 => Family::Ip4,
        FamilyArg::Ip6 => Family::Ip6,
    });
    let sets = match &args.ipset {
        Some(path) => Some(IpSets::read(&read(path)?).with_context(|| name(path))?),
        None => None,
    };
    let options = IptablesOptions { family, addresses: addresses(&args.host), sets, path_mtu: args.host.mtu };
    let mut draft = PolicyDraft::default();
    iptables::translate(&text, args.chain.name(), &options, &mut draft)
        .with_context(|| name(&args.files.file))?;
    Ok(draft)
}

fn from_nftables(args: &NftablesArgs) -> anyhow::Result<PolicyDraft> {
    let text = read(&args.files.file)?;
    let path = match args.hook {
        HookArg::Forward => PacketPath::Forward,
        HookArg::Input => PacketPath::Input,
    };
    let options = NftablesOptions { path, addresses: addresses(&args.host), path_mtu: args.host.mtu };
    let mut draft = PolicyDraft::default();
    nftables::translate(&text, &options, &mut draft).with_context(|| name(&args.files.file))?;
    Ok(draft)
}

fn addresses(host: &HostArgs) -> HostAddresses {
    let mut addresses = HostAddresses::default();
    for HostAddress { port, address, length } in &host.address {
        addresses.add(port, *address, *length);
    }
    addresses
}

/// Writes the policy and reports what it leaves out.
fn finish(files: &ImportFiles, draft: &PolicyDraft, global: &Global) -> anyhow::Result<ExitCode> {
    let complete = draft.left_out.is_empty();
    if !global.json {
        for note in &draft.notes {
            output::report_error(note);
        }
        for left_out in &draft.left_out {
            output::report_error(&left_out.to_string());
        }
    }
    if files.strict && !complete {
        bail!(
            "{} left out, and nothing written since --strict is given",
            count(draft.left_out.len(), "item")
        );
    }
    match &files.output {
        Some(path) => {
            let mut file = FileWriter::begin(&path.to_string_lossy(), FileContent::Policy)?;
            file.write(draft.text().as_bytes())?;
            file.finish()?;
        }
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
        output::report_error(&format!("{left_out} left out: {}", draft.effect()));
    }
    Ok(if complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn read(path: &Path) -> anyhow::Result<String> {
    policy_file::read(path).with_context(|| match is_xz(path) {
        true => format!("{0}: it is compressed; use `xz -dc {0} | mmb import … -`", name(path)),
        false => name(path),
    })
}

/// Returns whether a file is compressed with xz. Standard input has been read by now.
fn is_xz(path: &Path) -> bool {
    use std::io::Read;
    let mut magic = [0; XZ.len()];
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic));
    read.is_ok() && magic == XZ
}
