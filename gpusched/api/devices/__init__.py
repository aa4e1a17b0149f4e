"""Which GPUs does a node have, and which part of them does a pod ask for? Slots, shares of one GPU, islands of GPUs, NUMA nodes, and what drivers publish."""
