"""Which pods are evicted so that a number of pods fit? Cheapest first for what they free; a lower bound proves most domains, the solver searches the rest."""
