"""How does a plan reach the API server? Bindings, volumes, evictions and preemptions, then status and events, each slower and later than the one before."""
