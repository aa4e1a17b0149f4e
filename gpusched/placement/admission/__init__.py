"""Which gangs of a batch start together, and where? Greedy orders first, then pools by the solver, made exact at the end."""
