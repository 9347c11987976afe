"""What the tests and the evaluation share: namespaces and cables, processes with deadlines, a running mmb, a running VPP."""
