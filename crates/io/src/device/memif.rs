//! memif: memory shared with another process.

use super::eth::EthDriver;
use super::kind::{DeviceForm, DeviceKind, Opening, bad, behind};
use crate::driver::PortDriver;
use crate::error::PortError;
use crate::kernel::KernelInterface;
use std::fmt;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;

/// The advice if a memif cannot be added.
const REMEDY: &str =
    "see that the directory of the socket exists, and that both ends agree on id and options";

/// One end of a memif.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memif {
    /// The path of the socket on which the two ends find each other.
    pub path: String,
    /// This end listens.
    pub server: bool,
    /// Everything else, as the driver takes it: `id=0`, `rsize=10`.
    pub options: Vec<String>,
}

impl Memif {
    /// `server` or `client`.
    pub fn role(&self) -> &'static str {
        if self.server { "server" } else { "client" }
    }

    /// The device string for DPDK, with a number that no other memif of this process has.
    pub fn devargs(&self, number: usize) -> String {
        let mut devargs =
            format!("net_memif{number},role={},socket={},socket-abstract=no", self.role(), self.path);
        for option in &self.options {
            devargs.push(',');
            devargs.push_str(option);
        }
        devargs
    }
}

impl DeviceKind for Memif {
    fn form() -> DeviceForm {
        DeviceForm {
            prefix: Some("memif"),
            usage: Some("memif:PATH,id=N,role=server|client"),
            example: "memif:/run/mmb/vpp.sock,id=0,role=server",
        }
    }

    fn parse(text: &str) -> Option<Result<Memif, PortError>> {
        Some(memif(behind("memif", text)?).map_err(|why| bad(text, &why)))
    }

    fn key(&self) -> String {
        let id = self.options.iter().find_map(|option| option.strip_prefix("id=")).unwrap_or("0");
        format!("memif {} id={id} role={}", self.path, self.role())
    }

    fn prepare(&self) -> Result<(), PortError> {
        clear_socket(self)
    }

    fn open(
        &self,
        opening: &mut Opening<'_>,
        _interface: Option<&KernelInterface>,
    ) -> Result<Box<dyn PortDriver>, PortError> {
        let devargs = self.devargs(opening.number);
        let (port, queues) = opening.eth(self, &devargs, REMEDY)?;
        Ok(Box::new(EthDriver::new(port, queues)))
    }
}

impl fmt::Display for Memif {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "memif:{},role={}", self.path, self.role())?;
        self.options.iter().try_for_each(|option| write!(f, ",{option}"))
    }
}

/// Removes the socket that a killed memif server left behind, on which nobody answers.
fn clear_socket(memif: &Memif) -> Result<(), PortError> {
    if !memif.server {
        return Ok(());
    }
    match UnixStream::connect(&memif.path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        // A file that is no socket refuses connections as well.
        Err(error) if error.kind() == ErrorKind::ConnectionRefused && is_socket(&memif.path) => {
            std::fs::remove_file(&memif.path)
                .map_err(|_| PortError::system(format!("removing the unused socket {}", memif.path)))
        }
        // Any other result means that somebody listens, if only on another kind of socket.
        _ => Err(PortError::MemifTaken(memif.path.clone())),
    }
}

fn is_socket(path: &str) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
}

fn memif(text: &str) -> Result<Memif, String> {
    let mut words = text.split(',');
    let path = words.next().unwrap_or_default();
    if path.is_empty() || path.contains('=') {
        return Err(
            "memif: begins with the path of a socket, as in memif:/run/x.sock,id=0,role=client".into()
        );
    }
    if path.len() > 107 {
        return Err("the path of a socket has at most 107 bytes".into());
    }
    let mut memif = Memif { path: path.into(), server: false, options: Vec::new() };
    for word in words {
        match word.split_once('=') {
            Some(("role", "server")) => memif.server = true,
            Some(("role", "client")) => memif.server = false,
            Some(("role", other)) => return Err(format!("role is server or client, not '{other}'")),
            Some(("id", id)) if id.parse::<u32>().is_err() => {
                return Err(format!("id is a number, not '{id}'"));
            }
            Some(("socket" | "socket-abstract", _)) => {
                return Err("the socket is the path behind 'memif:'".into());
            }
            Some(("id" | "bsize" | "rsize" | "mac" | "secret" | "zero-copy", _)) => {
                memif.options.push(word.into())
            }
            _ => {
                let known = "id, role, bsize, rsize, mac, secret and zero-copy, each with '=' and a value";
                return Err(format!("'{word}' is no option of a memif; there are {known}"));
            }
        }
    }
    Ok(memif)
}
