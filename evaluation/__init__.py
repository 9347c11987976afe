"""The evaluation: a comparison of mmb with its alternatives, on the current machine.

`experiments` lists the measurements, `systems` the systems that are compared, `loads` the loads, `topology` the namespaces,
`method` the number and the order of runs, `accounting` the cost of a run. `memory` and `vpp` measure without the kernel. `report`
writes docs/evaluation from the results. docs/evaluation/method.md describes the method for readers.
"""
