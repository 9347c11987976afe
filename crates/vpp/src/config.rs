//! The section `mmb` of VPP's startup.conf.
//!
//! ```text
//! mmb {
//!     policy /etc/vpp/policy.mmb
//!     socket /run/vpp/mmb.sock
//! }
//! ```

use std::path::PathBuf;

/// What the section says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PluginConfig {
    /// The policy to begin with; none: an empty one.
    pub(crate) policy: Option<PathBuf>,
    /// Where clients find it.
    pub(crate) socket: SocketConfig,
}

/// The control socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum SocketConfig {
    /// `mmb.sock` in VPP's runtime directory, if that can be.
    #[default]
    Usual,
    /// There, or VPP does not start.
    At(PathBuf),
    /// Nowhere: VPP's own command line is all there is.
    Off,
}

/// What is wrong with the section.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ConfigError {
    /// A word that means nothing here.
    #[error("unknown input '{0}'; the section mmb knows: policy FILE, socket PATH, no-socket")]
    Unknown(String),
    /// A word ends the section that something has to follow.
    #[error("{0} is missing behind '{1}'")]
    Missing(&'static str, &'static str),
    /// What is random in a VPP is not to be repeated.
    #[error(
        "'seed' is not taken any more: whoever knows it knows all ports and sequence numbers that mmb will choose; remove it \
         ('mmb replay --seed' repeats what is random)"
    )]
    Seed,
    /// Something is said twice, or once more in another way.
    #[error("'{0}' says again what was said before")]
    Twice(&'static str),
}

impl PluginConfig {
    /// From what stands between the section's braces.
    ///
    /// # Errors
    /// The first word that is wrong.
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

fn once<T>(place: &mut Option<T>, value: T, word: &'static str) -> Result<(), ConfigError> {
    if place.replace(value).is_some() { Err(ConfigError::Twice(word)) } else { Ok(()) }
}
