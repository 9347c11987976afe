//! The options of `mmb web`.

use clap::{Args, ValueHint};
use std::path::PathBuf;

/// `mmb web`
#[derive(Debug, Args)]
#[command(after_help = "\
The page is a client of the control socket and may do what its user may do there. On an address, clients need a token: without --token-file a new one is made at each start \
and printed with the address; --client-ca asks for certificates instead. Other addresses than those of this machine need TLS. /metrics has the counters for Prometheus, \
/api/openapi.json describes the API.")]
pub(crate) struct WebArgs {
    /// Where clients connect: an address and a port, or a socket in the file system for its owner
    #[arg(long, value_name = "ADDRESS:PORT|unix:PATH", default_value = "127.0.0.1:8090")]
    pub(crate) listen: String,
    /// The group whose members may connect to unix:PATH, by name or number
    #[arg(long, value_name = "GROUP")]
    pub(crate) group: Option<String>,
    /// The certificate of the server and those of its issuers, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_key", value_hint = ValueHint::FilePath)]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The key of the certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert", value_hint = ValueHint::FilePath)]
    pub(crate) tls_key: Option<PathBuf>,
    /// Clients need a certificate of one of these authorities, in PEM, instead of a token; with --token-file both
    #[arg(long, value_name = "FILE", requires = "tls_cert", value_hint = ValueHint::FilePath)]
    pub(crate) client_ca: Option<PathBuf>,
    /// The token is the first line of this file; it is made if it does not exist
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) token_file: Option<PathBuf>,
    /// The same for a token that is good for /metrics alone
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) metrics_token_file: Option<PathBuf>,
    /// A further name by which clients reach the server, behind a proxy for instance; can be given several times
    #[arg(long = "host", value_name = "NAME")]
    pub(crate) hosts: Vec<String>,
    /// Show everything and change nothing
    #[arg(long)]
    pub(crate) read_only: bool,
    /// How many rules have metrics of their own: the first ones with a name
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(0..=10_000))]
    pub(crate) metrics_rules: usize,
}
