"""Which nodes may take a pod, and which are better? Predicates as in kube-scheduler, scores, topology."""
