"""What does kube-controller-manager do here? One controller for each thing that a batch scheduler lives with."""
