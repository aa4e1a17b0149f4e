"""What may administrators set? Quotas, limit ranges, budgets, priority classes, roles, network and admission policies."""
