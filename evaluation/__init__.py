"""The evaluation: a comparison of mmb with its alternatives, on the current machine.

`experiments` lists the measurements between namespaces, `systems` the systems that are compared, `loads` the loads, `topology` the
namespaces, `accounting` the cost of a run. `memory` and `vpp` measure without the kernel. `live`, `memory` and `vpp` plan points,
`campaign` chooses among them, lists them and measures them in a `session`: it takes turns by `method`, has the time of `budget`, and
keeps each point as a file of a `store`. `exclusive` lets only one evaluation
run on a machine. `figures` names the figures of the papers that the experiments correspond to. `report` writes
docs/evaluation from the results. docs/evaluation/method.md describes the method for readers.
"""
