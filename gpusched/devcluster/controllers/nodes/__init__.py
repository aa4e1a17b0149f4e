"""What follows from the state of a node? Taints, evictions of pods that do not tolerate them, nodes of a NodePool."""
