//! In place of the programs where they were not built.

use super::hook::FlowHook;
use super::table::{FlowQueue, FlowTable};
use crate::kernel::KernelInterface;
use std::convert::Infallible;
use std::os::fd::BorrowedFd;

/// The programs, of which there are none.
#[derive(Debug)]
pub struct FlowPrograms(Infallible);

/// An attached program, of which there is none.
#[derive(Debug)]
pub struct Attachment(Infallible);

impl Attachment {
    /// Where it is attached.
    pub fn hook(&self) -> FlowHook {
        match self.0 {}
    }
}

impl FlowPrograms {
    /// Loads nothing.
    ///
    /// # Errors
    /// Always.
    pub fn load(_: u32, _: u16) -> Result<FlowPrograms, String> {
        Err("this mmb was built without clang".into())
    }

    /// Attaches nothing.
    ///
    /// # Errors
    /// Never called.
    pub fn attach(&mut self, _: &KernelInterface) -> Result<Attachment, String> {
        match self.0 {}
    }

    pub(crate) fn filter(&mut self, _: BorrowedFd<'_>) -> Result<(), String> {
        match self.0 {}
    }

    /// The number of a worker's queue of an interface.
    pub fn queue(&self, _: &str, _: u16) -> Option<u32> {
        match self.0 {}
    }

    pub(crate) fn flow_queue(&self, _: &str, _: u16) -> Option<FlowQueue> {
        match self.0 {}
    }

    pub(crate) fn frame_queues(&mut self, _: &str) -> Result<Vec<FlowQueue>, String> {
        match self.0 {}
    }

    pub(crate) fn forward_frame(&self, _: BorrowedFd<'_>) -> Result<Vec<u64>, String> {
        match self.0 {}
    }

    /// Nothing.
    pub fn update_egress(&self, _: u32) -> bool {
        match self.0 {}
    }

    /// The most flows.
    pub fn capacity(&self) -> u32 {
        match self.0 {}
    }

    /// A part of the table of flows.
    pub fn table(&self, _: u32, _: u32) -> FlowTable {
        match self.0 {}
    }

    /// A function that sets the epoch.
    pub fn epoch_setter(&self) -> impl Fn(u32) + Send + use<> {
        let never = self.0;
        move |_| match never {}
    }
}
