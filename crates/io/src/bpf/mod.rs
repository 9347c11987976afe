//! The few requests to the kernel's BPF system call that are needed here, and the instructions of programs (`instruction`).
//!
//! Each request is a structure that the kernel reads up to the length given, and that later kernels only make
//! longer (`union bpf_attr`); it is built here word by word.

pub(crate) mod instruction;

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

const MAP_CREATE: libc::c_long = 0;
const MAP_LOOKUP: libc::c_long = 1;
const MAP_UPDATE: libc::c_long = 2;
const MAP_DELETE: libc::c_long = 3;
const PROG_LOAD: libc::c_long = 5;
const LINK_CREATE: libc::c_long = 28;

const MAP_TYPE_ARRAY: u32 = 2;
const MAP_TYPE_XSKMAP: u32 = 17;
#[cfg(flows)]
const MAP_TYPE_DEVMAP_HASH: u32 = 25;
/// The values of a map can be mapped into the memory of the process.
const MAPPABLE: u32 = 1 << 10;
const PROG_TYPE_SCHED_CLS: u32 = 3;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
const ATTACH_TCX_EGRESS: u32 = 47;
/// In front of the programs that are attached already.
const ATTACH_BEFORE: u32 = 1 << 3;
/// The program may ask the device that it is bound to about frames.
const DEVICE_BOUND_ONLY: u32 = 1 << 6;

/// A request in the making.
#[derive(Default)]
struct BpfRequest(Vec<u8>);

impl BpfRequest {
    fn word(mut self, word: u32) -> BpfRequest {
        self.0.extend(word.to_ne_bytes());
        self
    }

    fn pointer<T>(mut self, to: *const T) -> BpfRequest {
        self.0.extend((to as u64).to_ne_bytes());
        self
    }

    /// # Safety
    /// The memory behind the request's pointers is as the kernel expects for that command.
    unsafe fn call(mut self, command: libc::c_long) -> std::io::Result<libc::c_long> {
        // SAFETY: the request has the length given; for the rest the caller vouches.
        let result = unsafe {
            libc::syscall(libc::SYS_bpf, command, self.0.as_mut_ptr(), self.0.len() as libc::c_uint)
        };
        if result < 0 { Err(std::io::Error::last_os_error()) } else { Ok(result) }
    }

    /// # Safety
    /// As [`BpfRequest::call`], and the command gives a new descriptor.
    unsafe fn open(self, command: libc::c_long) -> std::io::Result<OwnedFd> {
        // SAFETY: a new descriptor belongs to the value alone; for the rest the caller vouches.
        unsafe { Ok(OwnedFd::from_raw_fd(self.call(command)? as RawFd)) }
    }
}

/// A map with keys and values of these sizes.
#[derive(Debug)]
pub(crate) struct BpfMap<const KEY: usize, const VALUE: usize>(OwnedFd);

impl<const KEY: usize, const VALUE: usize> BpfMap<KEY, VALUE> {
    /// The map behind a descriptor.
    ///
    /// # Safety
    /// It is a map with keys and values of these sizes.
    pub(crate) unsafe fn from_fd(map: OwnedFd) -> BpfMap<KEY, VALUE> {
        BpfMap(map)
    }

    fn create(kind: u32, count: u32) -> std::io::Result<BpfMap<KEY, VALUE>> {
        let request = BpfRequest::default().word(kind).word(KEY as u32).word(VALUE as u32).word(count);
        // SAFETY: type, size of keys and of values, number of entries; nothing is pointed to.
        unsafe { request.open(MAP_CREATE).map(BpfMap) }
    }

    /// Puts an entry into the map, in place of one with the same key.
    ///
    /// # Errors
    /// The map is full, the kernel has no memory, or what the value stands for (a socket, an interface) does not exist or is of another kind.
    pub(crate) fn update(&self, key: &[u8; KEY], value: &[u8; VALUE]) -> std::io::Result<()> {
        let request = BpfRequest::default().word(self.0.as_raw_fd() as u32).word(0);
        // SAFETY: map, padding, key, value and flags; key and value have the map's sizes.
        unsafe { request.pointer(key.as_ptr()).pointer(value.as_ptr()).word(0).word(0).call(MAP_UPDATE)? };
        Ok(())
    }

    /// The value of a key; `None` if there is none.
    pub(crate) fn get(&self, key: &[u8; KEY]) -> Option<[u8; VALUE]> {
        let mut value = [0; VALUE];
        let request = BpfRequest::default().word(self.0.as_raw_fd() as u32).word(0);
        // SAFETY: map, padding, key, place for the value, flags; both have the map's sizes.
        unsafe { request.pointer(key.as_ptr()).pointer(value.as_mut_ptr()).word(0).word(0).call(MAP_LOOKUP) }
            .ok()?;
        Some(value)
    }

    /// Removes the entry with a key.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn delete(&self, key: &[u8; KEY]) -> std::io::Result<()> {
        let request = BpfRequest::default().word(self.0.as_raw_fd() as u32).word(0);
        // SAFETY: map, padding and key; the key has the map's size.
        unsafe { request.pointer(key.as_ptr()).call(MAP_DELETE)? };
        Ok(())
    }
}

impl<const KEY: usize, const VALUE: usize> AsFd for BpfMap<KEY, VALUE> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A map from queue numbers to these sockets.
pub(crate) fn socket_map(sockets: &[RawFd]) -> std::io::Result<BpfMap<4, 4>> {
    let map = BpfMap::create(MAP_TYPE_XSKMAP, sockets.len().max(1) as u32)?;
    for (queue, socket) in (0u32..).zip(sockets) {
        map.update(&queue.to_ne_bytes(), &socket.to_ne_bytes())?;
    }
    Ok(map)
}

/// A map of so many interfaces by number, to which programs may redirect frames.
#[cfg(flows)]
pub(crate) fn device_map(count: u32) -> std::io::Result<BpfMap<4, 4>> {
    BpfMap::create(MAP_TYPE_DEVMAP_HASH, count)
}

/// A map with one value of that many bytes, which can be mapped into memory.
pub(crate) fn shared_value(bytes: u32) -> std::io::Result<OwnedFd> {
    // SAFETY: type, size of the key and of the value, number of entries, flags; nothing is pointed to.
    unsafe {
        BpfRequest::default().word(MAP_TYPE_ARRAY).word(4).word(bytes).word(1).word(MAPPABLE).open(MAP_CREATE)
    }
}

/// Loads an XDP program. It runs on the interface of that number only, if one is given, and may ask its device about frames then.
pub(crate) fn load_xdp(
    instructions: &[u64],
    name: &str,
    license: &str,
    interface: Option<i32>,
) -> std::io::Result<OwnedFd> {
    let (flags, interface) = interface.map_or((0, 0), |number| (DEVICE_BOUND_ONLY, number as u32));
    load(PROG_TYPE_XDP, instructions, name, license, [flags, interface, ATTACH_XDP])
}

/// Loads a program of the traffic control's type.
pub(crate) fn load_classifier(instructions: &[u64], name: &str, license: &str) -> std::io::Result<OwnedFd> {
    load(PROG_TYPE_SCHED_CLS, instructions, name, license, [0; 3])
}

fn load(
    kind: u32,
    instructions: &[u64],
    name: &str,
    license: &str,
    [flags, interface, attach_type]: [u32; 3],
) -> std::io::Result<OwnedFd> {
    let license = CString::new(license)?;
    let mut name_bytes = [0u8; 16];
    for (to, from) in name_bytes.iter_mut().take(15).zip(name.bytes()) {
        *to = from;
    }
    let mut request = BpfRequest::default().word(kind).word(instructions.len() as u32);
    request = request.pointer(instructions.as_ptr()).pointer(license.as_ptr());
    // No log: its level, its size, its place; then the kernel version, which is not looked at any more.
    request = request.word(0).word(0).pointer(std::ptr::null::<u8>()).word(0).word(flags);
    request.0.extend(name_bytes);
    // SAFETY: the instructions and the licence are where the request says, and as many.
    unsafe { request.word(interface).word(attach_type).open(PROG_LOAD) }
}

/// Attaches an XDP program to the interface of that number until the result is dropped, whatever way the process ends.
pub(crate) fn attach(program: &OwnedFd, interface: i32) -> std::io::Result<OwnedFd> {
    link(program, interface, ATTACH_XDP, 0)
}

/// Attaches a program of the traffic control's type to what leaves by the interface of that number, before other programs (tcx, Linux 6.6), as
/// [`attach`] does.
pub(crate) fn attach_egress(program: &OwnedFd, interface: i32) -> std::io::Result<OwnedFd> {
    link(program, interface, ATTACH_TCX_EGRESS, ATTACH_BEFORE)
}

fn link(program: &OwnedFd, interface: i32, kind: u32, flags: u32) -> std::io::Result<OwnedFd> {
    let request = BpfRequest::default().word(program.as_raw_fd() as u32).word(interface as u32);
    // SAFETY: program, interface, kind of attachment and flags; nothing is pointed to.
    unsafe { request.word(kind).word(flags).open(LINK_CREATE) }
}
