"""How are objects read from and written to the API server? One codec a kind, the only writers of request bodies, and the seal on records that tenants could change."""
