"""The controllers a batch scheduler lives with: jobs, garbage collection, budgets, nodes, quotas."""
