//! Ports of DPDK and their queues.

use super::eal::{self, Eal, refused};
use super::ffi::{self, RawPortInfo, RawPortStats};
use crate::error::PortError;
use crate::mbuf::{BURST, Burst, Mbuf, MbufPool};
use std::ffi::CString;

/// Properties of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The driver, `net_af_xdp`.
    pub driver: String,
    /// The Ethernet address.
    pub mac: [u8; 6],
    /// The most queue pairs that it can have.
    pub max_queues: u16,
    /// The largest MTU that it can have.
    pub max_mtu: u32,
    /// The link is up.
    pub link: bool,
}

/// A device's counters of errors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceStats {
    /// Packets that arrived when no room was free for them.
    pub rx_missed: u64,
    /// Packets that arrived broken.
    pub rx_errors: u64,
    /// Packets that the device failed to send.
    pub tx_errors: u64,
}

/// One port of DPDK. Dropping it closes it.
#[derive(Debug)]
pub struct EthPort {
    id: u16,
    queues: u16,
    stretch: usize,
    open: bool,
}

/// Frames of one call of the memif driver. When the other end goes away, a thread of DPDK's unmaps the memory that both
/// share, a moment after it has told the driver to stop: a call should be over by then.
const MEMIF_STRETCH: usize = 32;

impl EthPort {
    /// Adds a device to the environment by its DPDK device string.
    ///
    /// # Errors
    /// [`PortError::Dpdk`] with what the driver logged.
    pub fn attach(_eal: &Eal, devargs: &str) -> Result<EthPort, PortError> {
        let doing = || "it cannot be added".to_owned();
        let text = CString::new(devargs).map_err(|_| refused(doing(), libc::EINVAL))?;
        let mut id = 0;
        eal::take_log();
        // SAFETY: a C string and a place for the result; the environment runs, as `Eal` shows.
        let result = unsafe { ffi::mmb_port_attach(text.as_ptr(), &mut id) };
        if result < 0 {
            return Err(refused(doing(), -result));
        }
        let mut port = EthPort { id, queues: 0, stretch: BURST, open: true };
        if port.info()?.driver == "net_memif" {
            port.stretch = MEMIF_STRETCH;
        }
        Ok(port)
    }

    /// Gives the port its queues and their memory, and starts it.
    ///
    /// # Errors
    /// [`PortError::Dpdk`] with what the driver logged.
    pub fn start(
        &mut self,
        queues: u16,
        descriptors: u16,
        mtu: u16,
        pool: &MbufPool,
    ) -> Result<(), PortError> {
        eal::take_log();
        // SAFETY: the port exists until `close`, and the pool as long as the process; no queue was given away yet.
        let result = unsafe { ffi::mmb_port_setup(self.id, queues, descriptors, mtu, pool.raw()) };
        if result < 0 {
            return Err(refused("setting up the queues", -result));
        }
        // SAFETY: as above.
        let result = unsafe { ffi::mmb_port_start(self.id) };
        if result < 0 {
            return Err(refused("starting the port", -result));
        }
        self.queues = queues;
        Ok(())
    }

    /// Receives frames for every address. Devices that always do may refuse.
    pub fn promiscuous(&self) {
        // SAFETY: the port exists.
        unsafe { ffi::mmb_port_promiscuous(self.id) };
    }

    /// The queue pair of that number.
    ///
    /// # Panics
    /// If there is no such queue.
    pub fn queue(&self, queue: u16) -> EthQueue {
        assert!(queue < self.queues, "queue {queue} of {}", self.queues);
        EthQueue { port: self.id, queue, stretch: self.stretch }
    }

    /// The device's properties.
    ///
    /// # Errors
    /// [`PortError::Dpdk`] if it is gone.
    pub fn info(&self) -> Result<DeviceInfo, PortError> {
        let mut info = RawPortInfo::default();
        // SAFETY: the port exists, and the place for the result is one.
        let result = unsafe { ffi::mmb_port_info(self.id, &mut info) };
        if result < 0 {
            return Err(refused("asking the device about itself", -result));
        }
        let driver = info.driver.split(|&byte| byte == 0).next().unwrap_or_default();
        Ok(DeviceInfo {
            driver: String::from_utf8_lossy(driver).into_owned(),
            mac: info.mac,
            max_queues: info.max_queues,
            max_mtu: info.max_mtu,
            link: info.link != 0,
        })
    }

    /// The device's counters; zeros if it has none.
    pub fn stats(&self) -> DeviceStats {
        let mut stats = RawPortStats::default();
        // SAFETY: the port exists, and the place for the result is one.
        if unsafe { ffi::mmb_port_stats(self.id, &mut stats) } < 0 {
            return DeviceStats::default();
        }
        DeviceStats {
            rx_missed: stats.rx_missed + stats.rx_nombuf,
            rx_errors: stats.rx_errors,
            tx_errors: stats.tx_errors,
        }
    }

    /// Stops the port and gives the device back. No queue of it receives or sends from then on.
    pub(crate) fn shut(&mut self) {
        if std::mem::take(&mut self.open) {
            // SAFETY: the port exists, and is not touched again.
            unsafe { ffi::mmb_port_close(self.id) };
        }
    }
}

impl Drop for EthPort {
    fn drop(&mut self) {
        self.shut();
    }
}

/// One queue pair of a port.
///
/// A queue whose port was closed receives nothing and takes nothing.
#[derive(Debug)]
pub struct EthQueue {
    port: u16,
    queue: u16,
    /// Frames of one call of the driver.
    stretch: usize,
}

impl EthQueue {
    /// Appends frames that have arrived to the burst, as many as fit; returns their number.
    #[inline]
    pub fn receive(&mut self, burst: &mut Burst) -> usize {
        let first = burst.len();
        loop {
            let length = burst.len();
            let room = burst.remaining_capacity().min(self.stretch);
            if room == 0 {
                return length - first;
            }
            // SAFETY: `room` places lie behind the burst's elements; `Mbuf` is transparent over `RawMbuf`; every place
            // up to the returned number is a buffer that now belongs to us.
            let got = unsafe {
                let places = burst.as_mut_ptr().add(length).cast();
                let got = usize::from(ffi::mmb_port_receive(self.port, self.queue, places, room as u16));
                burst.set_len(length + got.min(room));
                got
            };
            if got < self.stretch {
                return burst.len() - first;
            }
        }
    }

    /// Sends frames from the front of the burst and removes them; returns their number. There may be room for more.
    #[inline]
    pub fn send(&mut self, burst: &mut Burst) -> usize {
        if burst.is_empty() {
            return 0;
        }
        let length = burst.len().min(self.stretch);
        // SAFETY: the burst's elements are buffers that belong to us. The first `sent` of them now belong to the
        // device: the rest is moved over them without dropping them.
        unsafe {
            let sent = ffi::mmb_port_send(self.port, self.queue, burst.as_ptr().cast(), length as u16);
            let sent = usize::from(sent).min(length);
            forget_front(burst, sent);
            sent
        }
    }
}

/// Removes the first `n` buffers of a burst without freeing them.
///
/// # Safety
/// `n` is at most the burst's length, and these buffers have another owner now.
unsafe fn forget_front(burst: &mut Burst, n: usize) {
    let left = burst.len() - n;
    // SAFETY: both ranges lie inside the burst; the elements behind `left` are moved from, hence not dropped.
    unsafe {
        let base: *mut Mbuf = burst.as_mut_ptr();
        std::ptr::copy(base.add(n), base, left);
        burst.set_len(left);
    }
}
