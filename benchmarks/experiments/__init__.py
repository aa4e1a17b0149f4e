"""The experiments M1 to M6, all of them, and docs/experiments.md with their tables and pictures."""
