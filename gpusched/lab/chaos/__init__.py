"""Which invariant breaks under faults? Scripts drawn from a seed are played on whole clusters in virtual time, checked after each write, and cut down when they fail."""
