"""Which cluster-wide rules bind gangs? Namespaces, priority classes, quotas, budgets, topologies, Reservations."""
