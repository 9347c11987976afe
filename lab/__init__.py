"""The parts that the tests and the evaluation share: namespaces and veth pairs, processes with deadlines, a running mmb, a
running VPP."""
