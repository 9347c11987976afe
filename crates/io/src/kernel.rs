//! Kernel interfaces of the process's network namespace.
//!
//! The requests go through a socket and not to `/sys`, which shows another namespace if the process entered one without
//! mounting it again.
#![allow(unsafe_code)]

pub use crate::claim::InterfaceClaim;
use crate::error::PortError;
use crate::nearest::nearest;
use std::ffi::CStr;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// The largest MTU of any port.
pub(crate) const MAX_MTU: u32 = 9216;

const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_SFLAGS: u32 = 0x26;
const ETH_FLAG_RXVLAN: u32 = 1 << 8;
const SIOCETHTOOL: libc::c_ulong = 0x8946;

/// A kernel interface, found by name.
#[derive(Debug)]
pub struct KernelInterface {
    name: String,
    index: i32,
    socket: OwnedFd,
}

/// The state of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceState {
    /// It is enabled, and its link is up.
    pub running: bool,
    /// It is enabled.
    pub up: bool,
    /// It is a loopback device.
    pub loopback: bool,
}

/// The queues of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channels {
    /// Queues that receive and send.
    pub combined: u32,
    /// Queues that only receive.
    pub receive: u32,
}

impl KernelInterface {
    /// The interface of that name.
    ///
    /// # Errors
    /// [`PortError::NoInterface`] with the nearest name that exists; a refusal by the kernel.
    pub fn find(name: &str) -> Result<KernelInterface, PortError> {
        let interface = KernelInterface { name: name.to_owned(), index: 0, socket: control_socket()? };
        match interface.current_index() {
            Some(index) => Ok(KernelInterface { index, ..interface }),
            None => {
                let known = names();
                let nearest = nearest(name, &known).map(str::to_owned);
                Err(PortError::NoInterface { name: name.into(), nearest, known })
            }
        }
    }

    /// Claims the interface for this process among all mmbs of the network namespace, until the claim is dropped.
    ///
    /// # Errors
    /// [`PortError::InUse`] if another mmb has it.
    pub fn claim(&self) -> Result<InterfaceClaim, PortError> {
        InterfaceClaim::new(&self.name)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its number.
    pub fn index(&self) -> i32 {
        self.index
    }

    /// True if it still exists. A new interface of the same name is another one.
    pub fn exists(&self) -> bool {
        self.current_index() == Some(self.index)
    }

    /// Its MTU in bytes.
    ///
    /// # Errors
    /// A refusal by the kernel.
    pub fn mtu(&self) -> Result<u32, PortError> {
        let mut request = self.request();
        self.ioctl(libc::SIOCGIFMTU, &mut request, "reading the MTU")?;
        // SAFETY: the kernel filled in this member.
        Ok(unsafe { request.ifr_ifru.ifru_mtu }.max(0) as u32)
    }

    /// Sets its MTU.
    ///
    /// # Errors
    /// A refusal by the kernel.
    pub fn set_mtu(&self, mtu: u32) -> Result<(), PortError> {
        let mut request = self.request();
        request.ifr_ifru.ifru_mtu = mtu as i32;
        self.ioctl(libc::SIOCSIFMTU, &mut request, "setting the MTU")
    }

    /// Its Ethernet address; `None` if it is no Ethernet device.
    pub fn mac(&self) -> Option<[u8; 6]> {
        let mut request = self.request();
        self.ioctl(libc::SIOCGIFHWADDR, &mut request, "reading the address").ok()?;
        // SAFETY: the kernel filled in this member.
        let address = unsafe { request.ifr_ifru.ifru_hwaddr };
        let ethernet = address.sa_family == libc::ARPHRD_ETHER || address.sa_family == libc::ARPHRD_LOOPBACK;
        ethernet.then(|| std::array::from_fn(|i| address.sa_data[i] as u8))
    }

    /// Its IP addresses, without the link-local ones of IPv6, which the kernel assigns by itself.
    pub fn addresses(&self) -> Vec<IpAddr> {
        let mut found = Vec::new();
        // SAFETY: the list is read as the kernel's library made it, up to its null pointer, and freed once; the family of an address
        // tells the size of its structure.
        unsafe {
            let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
            if libc::getifaddrs(&raw mut list) != 0 {
                return found;
            }
            let mut entry = list;
            while let Some(of) = entry.as_ref() {
                if CStr::from_ptr(of.ifa_name).to_bytes() == self.name.as_bytes() && !of.ifa_addr.is_null() {
                    found.extend(ip_address(of.ifa_addr));
                }
                entry = of.ifa_next;
            }
            libc::freeifaddrs(list);
        }
        found.retain(|address| !matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local()));
        found
    }

    /// The name of the bridge or bond that it is a member of.
    pub fn master(&self) -> Option<String> {
        let index = crate::netlink::master(self.index)?;
        let mut name = [0u8; libc::IFNAMSIZ];
        // SAFETY: the buffer has the size that the call requires.
        let found = unsafe { !libc::if_indextoname(index, name.as_mut_ptr().cast()).is_null() };
        let name = CStr::from_bytes_until_nul(&name).ok()?;
        found.then(|| name.to_string_lossy().into_owned())
    }

    /// Its state; a deleted interface is down.
    pub fn state(&self) -> InterfaceState {
        let mut request = self.request();
        let known = self.ioctl(libc::SIOCGIFFLAGS, &mut request, "reading the flags").is_ok();
        // SAFETY: the kernel filled in this member, or it is zero.
        let flags = if known { i32::from(unsafe { request.ifr_ifru.ifru_flags }) } else { 0 };
        InterfaceState {
            running: flags & libc::IFF_RUNNING != 0 && flags & libc::IFF_UP != 0,
            up: flags & libc::IFF_UP != 0,
            loopback: flags & libc::IFF_LOOPBACK != 0,
        }
    }

    /// Sets it up.
    ///
    /// # Errors
    /// A refusal by the kernel.
    pub fn set_up(&self) -> Result<(), PortError> {
        let mut request = self.request();
        self.ioctl(libc::SIOCGIFFLAGS, &mut request, "reading the flags")?;
        // SAFETY: the kernel filled in this member.
        let flags = unsafe { request.ifr_ifru.ifru_flags };
        request.ifr_ifru.ifru_flags = flags | libc::IFF_UP as i16;
        self.ioctl(libc::SIOCSIFFLAGS, &mut request, "setting it up")
    }

    /// The name of its driver, `veth`; empty if it reports none.
    pub fn driver(&self) -> String {
        // struct ethtool_drvinfo: the command, then the driver's name in 32 bytes; 196 bytes in all.
        let mut info = [0u8; 196];
        info[..4].copy_from_slice(&ETHTOOL_GDRVINFO.to_ne_bytes());
        if !self.ethtool(&mut info) {
            return String::new();
        }
        let name = info[4..36].split(|&byte| byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(name).into_owned()
    }

    /// Its receiving queues; one if the driver does not report them.
    pub fn channels(&self) -> Channels {
        // struct ethtool_channels: the command, the four most, then receive, send, other and combined ones.
        let mut value = [0u8; 36];
        value[..4].copy_from_slice(&ETHTOOL_GCHANNELS.to_ne_bytes());
        if !self.ethtool(&mut value) {
            return Channels { combined: 0, receive: 1 };
        }
        let field = |at: usize| u32::from_ne_bytes([value[at], value[at + 1], value[at + 2], value[at + 3]]);
        Channels { combined: field(32), receive: field(20) }
    }

    /// True if it removes VLAN tags from frames and delivers them beside the frames.
    pub fn strips_vlan(&self) -> bool {
        self.ethtool_flags().is_some_and(|flags| flags & ETH_FLAG_RXVLAN != 0)
    }

    /// Makes it remove VLAN tags from frames, or leave them. False if it refuses.
    pub fn set_strips_vlan(&self, strips: bool) -> bool {
        let Some(flags) = self.ethtool_flags() else { return !strips };
        let wanted = if strips { flags | ETH_FLAG_RXVLAN } else { flags & !ETH_FLAG_RXVLAN };
        let mut value = [0u8; 8];
        value[..4].copy_from_slice(&ETHTOOL_SFLAGS.to_ne_bytes());
        value[4..].copy_from_slice(&wanted.to_ne_bytes());
        self.ethtool(&mut value) && self.strips_vlan() == strips
    }

    fn ethtool_flags(&self) -> Option<u32> {
        let mut value = [0u8; 8];
        value[..4].copy_from_slice(&ETHTOOL_GFLAGS.to_ne_bytes());
        self.ethtool(&mut value).then(|| u32::from_ne_bytes([value[4], value[5], value[6], value[7]]))
    }

    fn ethtool(&self, value: &mut [u8]) -> bool {
        let mut request = self.request();
        request.ifr_ifru.ifru_data = value.as_mut_ptr().cast();
        self.ioctl(SIOCETHTOOL, &mut request, "asking the driver").is_ok()
    }

    fn current_index(&self) -> Option<i32> {
        let mut request = self.request();
        self.ioctl(libc::SIOCGIFINDEX, &mut request, "looking it up").ok()?;
        // SAFETY: the kernel filled in this member.
        Some(unsafe { request.ifr_ifru.ifru_ifindex })
    }

    fn request(&self) -> libc::ifreq {
        // SAFETY: all zeros is a valid value of this plain structure.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        // One byte is left for the zero at the end.
        for (to, from) in request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(self.name.bytes()) {
            *to = from as libc::c_char;
        }
        request
    }

    fn ioctl(&self, number: libc::c_ulong, request: &mut libc::ifreq, doing: &str) -> Result<(), PortError> {
        // SAFETY: the requests used here read and write no more than the structure and, for ethtool, the buffer
        // that it points to, which has the size of the structure that its first word asks for.
        if unsafe { libc::ioctl(self.socket.as_raw_fd(), number, &raw mut *request) } < 0 {
            return Err(PortError::system(format!("interface {}: {doing}", self.name)));
        }
        Ok(())
    }
}

/// The IP address in a socket address.
///
/// # Safety
/// The pointer is valid, for the size that the family of the address has.
unsafe fn ip_address(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: the caller promises it.
    unsafe {
        match i32::from((*address).sa_family) {
            libc::AF_INET => {
                let v4 = address.cast::<libc::sockaddr_in>().read_unaligned();
                Some(IpAddr::from(v4.sin_addr.s_addr.to_ne_bytes()))
            }
            libc::AF_INET6 => {
                let v6 = address.cast::<libc::sockaddr_in6>().read_unaligned();
                Some(IpAddr::from(v6.sin6_addr.s6_addr))
            }
            _ => None,
        }
    }
}

/// The names of all interfaces.
pub fn names() -> Vec<String> {
    let mut names = Vec::new();
    // SAFETY: the array ends with an entry whose number is 0, and is freed once.
    unsafe {
        let list = libc::if_nameindex();
        if list.is_null() {
            return names;
        }
        let mut entry = list;
        while (*entry).if_index != 0 {
            names.push(CStr::from_ptr((*entry).if_name).to_string_lossy().into_owned());
            entry = entry.add(1);
        }
        libc::if_freenameindex(list);
    }
    names
}

/// Cores that the process may run on.
pub fn cores() -> Vec<usize> {
    // SAFETY: all zeros is a valid set; the kernel writes no more than the size says.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set);
        set
    };
    // SAFETY: every number is below the set's size.
    (0..libc::CPU_SETSIZE as usize).filter(|&core| unsafe { libc::CPU_ISSET(core, &set) }).collect()
}

/// Pins the calling thread to a core. False if the system refuses.
pub fn pin(core: usize) -> bool {
    if core >= libc::CPU_SETSIZE as usize {
        return false;
    }
    // SAFETY: all zeros is a valid set; the core is below its size; the calling thread is meant by 0.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) == 0
    }
}

/// Sets up the C library's heap.
///
/// Pieces of a megabyte and more are mapped one by one, whatever was freed before: tables of zeros take memory where they are used, and all of it
/// goes back with them. (By default glibc raises the limit with each such piece that is freed, and then writes the zeros.) If `RLIMIT_AS` or
/// `RLIMIT_DATA` is set, all threads allocate from one heap: by default glibc reserves 64 MB of address space for the heap of each thread.
pub fn set_up_heap() {
    #[cfg(target_env = "gnu")]
    {
        const MAPPED_FROM: libc::c_int = 1 << 20;
        const TRIMMED_FROM: libc::c_int = 8 << 20;
        let is_limited = |resource| {
            let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
            // SAFETY: writes one limit.
            let got = unsafe { libc::getrlimit(resource, &raw mut limit) };
            got == 0 && limit.rlim_cur != libc::RLIM_INFINITY
        };
        // SAFETY: what is allocated already stays as it is.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_FROM);
            libc::mallopt(libc::M_TRIM_THRESHOLD, TRIMMED_FROM);
            if is_limited(libc::RLIMIT_AS) || is_limited(libc::RLIMIT_DATA) {
                libc::mallopt(libc::M_ARENA_MAX, 1);
            }
        }
    }
}

/// Gives back memory that was freed: the C library else keeps what lies between pieces that are still in use.
pub fn give_back_memory() {
    // SAFETY: touches nothing that is in use.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0)
    };
}

fn control_socket() -> Result<OwnedFd, PortError> {
    // SAFETY: makes a new descriptor, which then belongs to the value alone.
    unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if fd < 0 {
            return Err(PortError::system("opening a socket for interface requests"));
        }
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_device_is_found_and_described() {
        let lo = KernelInterface::find("lo").expect("every namespace has one");
        assert!(lo.exists() && lo.state().loopback);
        assert!(lo.mtu().expect("an MTU") > 0);
        assert_eq!(lo.mac(), Some([0; 6]));
        assert!(names().contains(&"lo".to_owned()));
    }

    #[test]
    fn a_wrong_name_gets_the_nearest() {
        let error = KernelInterface::find("loo").expect_err("no such interface");
        assert!(error.to_string().contains("did you mean 'lo'?"), "{error}");
    }

    #[test]
    fn the_loopback_device_has_addresses_and_no_master() {
        let lo = KernelInterface::find("lo").expect("every namespace has one");
        assert!(lo.addresses().iter().all(IpAddr::is_loopback), "{:?}", lo.addresses());
        assert_eq!(lo.master(), None);
    }

    #[test]
    fn there_is_a_core_to_run_on() {
        assert!(!cores().is_empty());
    }
}
