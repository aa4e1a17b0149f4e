"""Which objects and moments does a scenario's short form stand for? Nodes, queues and workloads become manifests, templates are rendered, repeats are drawn."""
