"""What could be changed for one gang: what it asks for, what is around it, and what forbids evictions for it."""
