"""Which writes does admission change or refuse? Namespaces, priority, limit ranges, quotas, and admission policies."""
