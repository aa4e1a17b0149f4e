"""Which pods form a gang, and how many of them have a place? The pod grouper, the gang index with its counts, expected pods of suspended Jobs, and what priority counts."""
