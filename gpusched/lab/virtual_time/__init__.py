"""How does a whole cluster with its daemons run in a moment? An event loop whose time jumps, connections that stay in the process, and processes that stand still."""
