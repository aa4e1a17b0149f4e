"""How many pods of a class fit each node now? Filters and scores per class, NUMA alignment, topology levels and free slots, each kept up to date while statements move pods."""
