"""Which queue is below which, what may each use, and what is wrong with it? The tree of queues, its checks, the node pools that queues name, and what shares of GPUs are charged."""
