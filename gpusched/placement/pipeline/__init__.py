"""In which order are the methods of placement tried? Counting, greedy, tree tables, then the solver; every answer is verified before it is returned."""
