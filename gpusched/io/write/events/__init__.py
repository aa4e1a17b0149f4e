"""What do events say, on which object, and how often? Of gangs that wait or start, of evictions, and the recorder that merges and sends them."""
