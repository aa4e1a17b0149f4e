"""A whole cluster in one process: API server, fake nodes, the controllers a scheduler needs."""
