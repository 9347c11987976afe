//! Names of kernel interfaces.

use super::kind::bad;
use crate::error::PortError;

/// A kernel interface's name, checked by the kernel's rules.
///
/// # Errors
/// The rule that it breaks.
pub(crate) fn interface_name(name: &str) -> Result<String, PortError> {
    let bad = |why| bad(name, why);
    if name.is_empty() {
        return Err(bad("the name of an interface is missing"));
    }
    if name.len() >= libc::IFNAMSIZ {
        return Err(bad("names of interfaces have at most 15 characters"));
    }
    if name.contains(['/', ',']) {
        return Err(bad("names of interfaces have no '/' and no ','"));
    }
    Ok(name.into())
}
