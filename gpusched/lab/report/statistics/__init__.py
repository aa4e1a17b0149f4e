"""Which numbers tell how a run went? Step functions over time, values of jobs, the ideal first-in-first-out bound, statistics by name, tables and comparisons."""
