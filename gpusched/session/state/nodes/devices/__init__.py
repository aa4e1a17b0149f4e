"""Which devices does each pod get, and what is taken of them? Claims of classes, usage now and later, counts of pods on each node, the search, and what is told of devices."""
