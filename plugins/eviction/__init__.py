"""Which gangs may be evicted, moved or stopped? Conformance, minimum and maximum run times, draining queues, bounds of consolidation."""
