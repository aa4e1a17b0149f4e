"""``make real``: the scenario library and the contract suite on the cluster KUBECONFIG names."""
