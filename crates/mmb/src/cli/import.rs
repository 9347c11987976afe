//! The command line of `mmb import`.

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use std::net::IpAddr;
use std::path::PathBuf;

/// `mmb import`
#[derive(Debug, Subcommand)]
pub(crate) enum ImportFrom {
    /// Translates a ClassBench filter set
    Classbench(ClassbenchArgs),
    /// Translates the output of iptables-save or ip6tables-save
    Iptables(IptablesArgs),
    /// Translates the output of nft -j list ruleset
    Nftables(NftablesArgs),
}

/// The input and the output of a translation.
#[derive(Debug, Args)]
pub(crate) struct ImportFiles {
    /// The file to translate; - is standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Write the policy to this file instead of standard output
    #[arg(short, long, value_name = "POLICY", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,
    /// Write nothing if anything has to be left out
    #[arg(long)]
    pub(crate) strict: bool,
}

/// `mmb import classbench`
#[derive(Debug, Args)]
#[command(after_help = "\
One filter a line, the best first: @SRC/LEN DST/LEN LO : HI LO : HI PROTO/MASK [FLAGS/MASK].
The exit status is 1 if filters were left out; mmb lists these and writes the others.")]
pub(crate) struct ClassbenchArgs {
    /// The files.
    #[command(flatten)]
    pub(crate) files: ImportFiles,
    /// The action of the rules, which the filters do not have
    #[arg(long, value_enum, default_value_t = ActionArg::Drop)]
    pub(crate) action: ActionArg,
    /// The way in which filters with ports match packets of protocols without ports
    #[arg(long, value_enum, default_value_t = PortlessArg::Never)]
    pub(crate) portless: PortlessArg,
    /// The byte of the flags column that has the eight TCP flags
    #[arg(long, value_enum, default_value_t = FlagsArg::LowerByte)]
    pub(crate) tcp_flags: FlagsArg,
}

/// The action of imported filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ActionArg {
    /// Drop
    Drop,
    /// Accept
    Accept,
    /// Alternately accept and drop, beginning with accept
    Alternate,
}

/// The way in which filters with ports match packets without ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PortlessArg {
    /// They match no such packet
    Never,
    /// Their ports are ignored
    Always,
}

/// The byte of a 16-bit column that has the TCP flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FlagsArg {
    /// In the lower byte, below data offset and reserved bits, as on the wire
    LowerByte,
    /// In the upper byte, above data offset and reserved bits
    UpperByte,
}

/// `mmb import iptables`
#[derive(Debug, Args)]
#[command(after_help = "\
Rules of a dump that cannot be translated are listed on standard error and as comments in the policy, each with what
its omission does: the policy is stricter without an ACCEPT and looser without a DROP. The exit status is then 1.")]
pub(crate) struct IptablesArgs {
    /// The files.
    #[command(flatten)]
    pub(crate) files: ImportFiles,
    /// The chain that becomes the policy, with those that packets pass before and behind it, and the chains that they call
    #[arg(long, value_enum, default_value_t = ChainArg::Forward, ignore_case = true)]
    pub(crate) chain: ChainArg,
    /// The family of the dump; without it, mmb reads it from comments or addresses
    #[arg(long, value_enum)]
    pub(crate) family: Option<FamilyArg>,
    /// The output of `ipset save` with the sets that rules name
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) ipset: Option<PathBuf>,
    /// What the dump does not contain.
    #[command(flatten)]
    pub(crate) host: HostArgs,
}

/// `mmb import nftables`
#[derive(Debug, Args)]
#[command(after_help = "\
Rules that cannot be translated are listed by their handles (nft -a list ruleset), on standard error and as comments in the
policy, each with what its omission does: the policy is stricter without an accept and looser without a drop. The exit status is
then 1.")]
pub(crate) struct NftablesArgs {
    /// The files.
    #[command(flatten)]
    pub(crate) files: ImportFiles,
    /// The hook that the policy is about, with those that packets pass before and behind it
    #[arg(long, value_enum, default_value_t = HookArg::Forward)]
    pub(crate) hook: HookArg,
    /// What the rule set does not contain.
    #[command(flatten)]
    pub(crate) host: HostArgs,
}

/// Hooks about packets from a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum HookArg {
    /// Packets that the host forwards
    Forward,
    /// Packets to the host itself
    Input,
}

/// What a rule set does not contain, but its host knows.
#[derive(Debug, Args)]
pub(crate) struct HostArgs {
    /// An address of the host whose rules are translated, for masquerading, redirects and rules on local addresses; may be repeated
    #[arg(long, value_name = "PORT=ADDRESS[/LENGTH]", value_parser = HostAddress::parse)]
    pub(crate) address: Vec<HostAddress>,
    /// The MTU of the paths, for rules that clamp the MSS of TCP to it
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(576..))]
    pub(crate) mtu: Option<u16>,
}

/// `PORT=ADDRESS[/LENGTH]`
#[derive(Clone, Debug)]
pub(crate) struct HostAddress {
    /// The port.
    pub(crate) port: String,
    /// Its address.
    pub(crate) address: IpAddr,
    /// The length of its prefix.
    pub(crate) length: Option<u8>,
}

impl HostAddress {
    /// Parses an argument.
    fn parse(text: &str) -> Result<HostAddress, String> {
        let expected = || format!("`{text}`: PORT=ADDRESS or PORT=ADDRESS/LENGTH is expected");
        let (port, address) =
            text.split_once('=').filter(|(port, _)| !port.is_empty()).ok_or_else(expected)?;
        let (address, length) = match address.split_once('/') {
            Some((address, length)) => (address, Some(length.parse::<u8>().map_err(|_| expected())?)),
            None => (address, None),
        };
        let address: IpAddr = address.parse().map_err(|_| expected())?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        if length.is_some_and(|length| length > bits) {
            return Err(expected());
        }
        Ok(HostAddress { port: port.to_owned(), address, length })
    }
}

/// Built-in chains about packets from a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ChainArg {
    /// Packets that the host forwards
    #[value(name = "FORWARD")]
    Forward,
    /// Packets to the host itself
    #[value(name = "INPUT")]
    Input,
}

impl ChainArg {
    /// The name of the chain.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ChainArg::Forward => "FORWARD",
            ChainArg::Input => "INPUT",
        }
    }
}

/// A family of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FamilyArg {
    /// IPv4
    #[value(name = "4")]
    Ip4,
    /// IPv6
    #[value(name = "6")]
    Ip6,
}
