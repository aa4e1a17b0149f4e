"""What could be changed? Advice about gangs that wait, and about layouts of partitions."""
