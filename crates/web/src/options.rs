//! What `mmb web` is started with, and which of it goes together.

use mmb_policy::Policy;
use serde_json::Value;
use std::net::SocketAddr;
use std::path::PathBuf;

/// What a policy does to a packet that satisfies constraints, and which constraints of rules hold: the answer of `mmb explain`.
pub type Explainer = fn(Policy, &str, &[u32]) -> Result<Value, String>;

/// Compiles the patterns of a policy, until nobody waits for it any more, and tells why they are refused.
pub type PatternCheck = fn(&Policy, &dyn Fn() -> bool) -> Result<(), String>;

/// Where clients connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// An address and a port.
    Tcp(SocketAddr),
    /// A socket in the file system, for its owner.
    Unix(PathBuf),
}

/// Files of TLS, in PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate and those of its issuers.
    pub certificate: PathBuf,
    /// The key of the certificate.
    pub key: PathBuf,
    /// The certificates of authorities; a client needs a certificate of one of them.
    pub client_authorities: Option<PathBuf>,
}

/// The options of `mmb web`.
#[derive(Clone, Debug)]
pub struct WebOptions {
    /// Where clients connect.
    pub listen: Listen,
    /// The group whose members may connect to a unix socket.
    pub group: Option<u32>,
    /// The control socket of the daemon.
    pub socket: PathBuf,
    /// TLS; without it, HTTP.
    pub tls: Option<TlsFiles>,
    /// The file of the token.
    pub token_file: Option<PathBuf>,
    /// The file of a token that is good for the metrics alone.
    pub metrics_token_file: Option<PathBuf>,
    /// Further names by which clients reach this server, as in `Host`.
    pub hosts: Vec<String>,
    /// Refuse requests that change anything.
    pub read_only: bool,
    /// How many rules with a name have metrics of their own.
    pub metrics_rules: usize,
    /// Explains packets.
    pub explain: Explainer,
    /// Checks patterns.
    pub check_patterns: PatternCheck,
}

/// The reason why options do not go together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// Traffic would be readable on the network.
    #[error(
        "{0} is no loopback address: without TLS everybody on the way could read the token and the policy; give --tls-cert and --tls-key, or listen on 127.0.0.1 or unix:PATH"
    )]
    NeedsTls(SocketAddr),
    /// TLS on a socket of this machine.
    #[error("TLS is for addresses; a unix socket is protected by its mode, owner and group")]
    TlsOnUnix,
    /// A group for an address.
    #[error(
        "--group is for unix sockets; on addresses a token or a client's certificate says who may connect"
    )]
    GroupOnTcp,
}

impl WebOptions {
    /// Checks that nobody who may not use the control socket gets in.
    ///
    /// # Errors
    /// The options do not go together.
    pub fn check(&self) -> Result<(), OptionsError> {
        match &self.listen {
            Listen::Tcp(_) if self.group.is_some() => Err(OptionsError::GroupOnTcp),
            Listen::Tcp(address) if !address.ip().is_loopback() && self.tls.is_none() => {
                Err(OptionsError::NeedsTls(*address))
            }
            Listen::Unix(_) if self.tls.is_some() => Err(OptionsError::TlsOnUnix),
            Listen::Tcp(_) | Listen::Unix(_) => Ok(()),
        }
    }

    /// Whether clients need a token: on addresses, unless they show certificates; and wherever a file is named.
    pub(crate) fn needs_token(&self) -> bool {
        let has_certificates = self.tls.as_ref().is_some_and(|tls| tls.client_authorities.is_some());
        self.token_file.is_some() || matches!(self.listen, Listen::Tcp(_)) && !has_certificates
    }

    /// Whether only this machine reaches the server directly.
    pub(crate) fn is_local(&self) -> bool {
        match &self.listen {
            Listen::Tcp(address) => address.ip().is_loopback(),
            Listen::Unix(_) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(listen: &str) -> WebOptions {
        let listen = match listen.strip_prefix("unix:") {
            Some(path) => Listen::Unix(path.into()),
            None => Listen::Tcp(listen.parse().expect("an address")),
        };
        WebOptions {
            listen,
            group: None,
            socket: "/x".into(),
            tls: None,
            token_file: None,
            metrics_token_file: None,
            hosts: Vec::new(),
            read_only: false,
            metrics_rules: 0,
            explain: |_, _, _| Err("no".into()),
            check_patterns: |_, _| Ok(()),
        }
    }

    fn with_tls(listen: &str, client_authorities: Option<&str>) -> WebOptions {
        let client_authorities = client_authorities.map(Into::into);
        WebOptions { tls: Some(TlsFiles { client_authorities, ..TlsFiles::default() }), ..options(listen) }
    }

    #[test]
    fn networks_need_tls() {
        for address in ["192.0.2.1:80", "0.0.0.0:80", "[::]:80", "[2001:db8::1]:80"] {
            assert!(matches!(options(address).check(), Err(OptionsError::NeedsTls(_))), "{address}");
            assert_eq!(with_tls(address, None).check(), Ok(()));
        }
        for address in ["127.0.0.1:80", "127.9.9.9:80", "[::1]:80", "unix:/run/web.sock"] {
            assert_eq!(options(address).check(), Ok(()), "{address}");
        }
        assert_eq!(with_tls("unix:/x", None).check(), Err(OptionsError::TlsOnUnix));
        let group = WebOptions { group: Some(1), ..options("127.0.0.1:80") };
        assert_eq!(group.check(), Err(OptionsError::GroupOnTcp));
    }

    #[test]
    fn addresses_need_a_token_or_certificates() {
        assert!(options("127.0.0.1:80").needs_token());
        assert!(with_tls("192.0.2.1:80", None).needs_token());
        assert!(!with_tls("192.0.2.1:80", Some("/ca")).needs_token());
        assert!(!options("unix:/x").needs_token(), "its mode says who may connect");
        assert!(WebOptions { token_file: Some("/t".into()), ..options("unix:/x") }.needs_token());
        let both = WebOptions { token_file: Some("/t".into()), ..with_tls("192.0.2.1:80", Some("/ca")) };
        assert!(both.needs_token());
    }
}
