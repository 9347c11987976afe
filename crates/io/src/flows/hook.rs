//! Where packets of an interface meet the program that forwards flows.

/// Where the program of an interface forwards flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowHook {
    /// tc ingress, on kernels since 6.6.
    Tcx,
    /// tc ingress, by the queueing discipline of that name.
    Clsact,
    /// The driver, or where it cannot run programs right behind it.
    Xdp,
}

impl FlowHook {
    /// Its name in `show offload`.
    pub const fn name(self) -> &'static str {
        match self {
            FlowHook::Tcx => "tcx",
            FlowHook::Clsact => "clsact",
            FlowHook::Xdp => "xdp",
        }
    }
}
