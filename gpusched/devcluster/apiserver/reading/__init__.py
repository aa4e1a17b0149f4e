"""How are objects shown? Lists, watches, metadata-only answers and the tables of kubectl get."""
