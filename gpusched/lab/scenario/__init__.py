"""How is a scenario played and judged? Read the file, unroll it, apply it to a cluster, record what happens, judge what was expected."""
