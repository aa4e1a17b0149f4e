"""What becomes of a recorded cluster? It is restored into a cache, and recorded decisions are repeated."""
