"""Which devices can the claims of pods be given on a node? The rules of Kubernetes' allocators, decided for all claims at once."""
