"""What is known of a node? Its allocatable resources, labels, taints and GPU layout."""
