"""What does kube-controller-manager do here? The controllers that a batch scheduler depends on, one for each kind of work."""
