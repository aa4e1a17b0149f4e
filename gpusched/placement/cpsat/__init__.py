"""How does the solver place gangs of several roles or sub-groups? Nodes become patterns, cells and rows of a CP-SAT model; searches are bounded, repeatable and run in the solver's process."""
