"""How does a run become a Record? Changes of objects become lives of pods, workloads, nodes and queues."""
