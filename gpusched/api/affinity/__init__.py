"""Which nodes may a pod run on, and near which pods? Label selectors, node affinity, taints and tolerations, inter-pod affinity, topology spread and host ports."""
