//! The policy of the command line: that of the policy file, with the settings of options.

use crate::cli::{Global, PollArg, RunArgs};
use crate::output;
use mmb_client::policy_file;
use mmb_policy::Policy;
use mmb_policy::settings::Poll;

/// Returns the initial policy with the settings of the command line; `None` if it has errors, which were reported.
pub(super) fn policy(args: &RunArgs, global: &Global) -> anyhow::Result<Option<Policy>> {
    let policy = match &args.policy {
        Some(path) => match policy_file::load(path, global.json, &output::Terminal)? {
            Some(policy) => policy,
            None => return Ok(None),
        },
        None => Policy::default(),
    };
    Ok(Some(with_options(policy, args)))
}

/// The policy with the settings of the command line.
pub(super) fn with_options(mut policy: Policy, args: &RunArgs) -> Policy {
    match args.poll {
        Some(PollArg::Adaptive) => policy.settings.poll = Poll::Adaptive,
        Some(PollArg::Spin) => policy.settings.poll = Poll::Spin,
        None => {}
    }
    policy
}
