"""What would let a waiting gang start? Changes that are tried on a copy of the cluster, each decided by the daemon's own sessions."""
