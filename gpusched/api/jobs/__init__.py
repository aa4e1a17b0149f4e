"""Which pods will a Job have, and what do namespaces, PriorityClasses, quotas and disruption budgets allow? The kinds of which only a few fields matter."""
