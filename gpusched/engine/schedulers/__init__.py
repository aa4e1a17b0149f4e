"""What simulated daemons decide, what becomes of it, and how those of shards agree."""
