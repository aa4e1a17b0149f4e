"""What a test does to a cluster from outside: its clock, faults on request, restarts, snapshots."""
