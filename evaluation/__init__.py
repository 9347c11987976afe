"""The evaluation: what mmb does beside what would be used instead, on the machine at hand.

`experiments` says what is measured, `systems` who is compared, `loads` what they are loaded with, `topology` between which
namespaces, `method` how often and in which order, `accounting` what a run cost. `memory` and `vpp` measure without the kernel.
`report` makes docs/evaluation of what was found. docs/evaluation/method.md tells all of it to readers.
"""
