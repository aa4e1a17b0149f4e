"""Groups, queues and workloads of other projects, read as our own entities."""
