"""Which gang is next? Priority, progress of the gang, dominant share and maxWait, each as sort keys within a queue."""
