"""How is a cluster or a decision recorded, made anonymous, restored and decided again? Snapshot files hold every kind the daemon reads; replay compares plans."""
