"""How is the embedded cluster started from a shell? Part of the extra ``devcluster``."""
