"""What may pods claim? Volumes and devices as the watches show them."""
