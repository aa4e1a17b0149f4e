"""What limits which members of a gang go together, beside amounts? Rules between its pods, and devices of a node."""
