"""Faults of every kind on whole clusters in virtual time: see docs/chaos.md."""
