"""The cluster as the watches show it, plus what we assumed. It decides nothing."""
