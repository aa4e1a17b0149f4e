"""How does the cache follow the cluster? Reflectors that list and watch, informers for each kind, discovery of other projects' kinds, and the comparer that finds lost events."""
