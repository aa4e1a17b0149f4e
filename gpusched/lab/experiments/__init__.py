"""Which published experiments are repeated, and with which figures? M6: the openb fill and months of gang jobs."""
