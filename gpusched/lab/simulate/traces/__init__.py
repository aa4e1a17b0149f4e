"""How does a trace become a workload? Readers of published traces, a generator, and the Jobs, nodes and queues made of them."""
