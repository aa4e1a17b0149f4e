"""What does a newcomer see in the first minute? The demo: an embedded cluster, the daemon and a sample workload. Part of the extra ``devcluster``."""
