"""Who may write, and until when? The elector drives the lease of ``gpusched.leader`` in the API server; whoever writes asks ``lease``."""
