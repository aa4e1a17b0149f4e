"""What is on each node? Node columns, the pods of each node, the view of its devices, what pods hold of it, and which pods its kubelet refused."""
