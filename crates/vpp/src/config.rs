//! The section `mmb` of VPP's startup.conf.
//!
//! ```text
//! mmb {
//!     policy /etc/vpp/policy.mmb
//!     socket /run/vpp/mmb.sock
//! }
//! ```

use std::path::PathBuf;

/// The settings of the section.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PluginConfig {
    /// The file of the first policy; `None` for an empty policy.
    pub(crate) policy: Option<PathBuf>,
    /// The control socket.
    pub(crate) socket: SocketConfig,
}

/// The control socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum SocketConfig {
    /// `mmb.sock` in VPP's runtime directory, if it can be opened.
    #[default]
    Usual,
    /// This path, or VPP does not start.
    At(PathBuf),
    /// None: only VPP's own command line.
    Off,
}

/// An error in the section.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ConfigError {
    /// An unknown word.
    #[error("unknown input '{0}'; the section mmb knows: policy FILE, socket PATH, no-socket")]
    Unknown(String),
    /// A value is missing behind the last word.
    #[error("{0} is missing behind '{1}'")]
    Missing(&'static str, &'static str),
    /// A seed, which earlier versions took: what is random in VPP must not be predictable.
    #[error(
        "'seed' is not taken any more: whoever knows it knows all ports and sequence numbers that mmb will choose; remove it \
         ('mmb replay --seed' repeats what is random)"
    )]
    Seed,
    /// A setting that is given twice.
    #[error("'{0}' is a duplicate")]
    Twice(&'static str),
}

impl PluginConfig {
    /// Parses the text between the section's braces.
    ///
    /// # Errors
    /// The first error in it.
    pub(crate) fn parse(text: &str) -> Result<PluginConfig, ConfigError> {
        let (mut policy, mut socket) = (None, None);
        let mut words = text.split_ascii_whitespace();
        while let Some(word) = words.next() {
            match word {
                "policy" => {
                    let file = words.next().ok_or(ConfigError::Missing("a file", "policy"))?;
                    once(&mut policy, PathBuf::from(file), "policy")?;
                }
                "socket" => {
                    let path = words.next().ok_or(ConfigError::Missing("a path", "socket"))?;
                    once(&mut socket, SocketConfig::At(PathBuf::from(path)), "socket")?;
                }
                "no-socket" => once(&mut socket, SocketConfig::Off, "no-socket")?,
                "seed" => return Err(ConfigError::Seed),
                other => return Err(ConfigError::Unknown(other.to_owned())),
            }
        }
        Ok(PluginConfig { policy, socket: socket.unwrap_or_default() })
    }
}

fn once<T>(setting: &mut Option<T>, value: T, word: &'static str) -> Result<(), ConfigError> {
    if setting.replace(value).is_some() { Err(ConfigError::Twice(word)) } else { Ok(()) }
}
