"""Which process may write, and until when? The elector drives the lease of ``gpusched.leader`` in the API server; every writer asks ``lease``."""
