"""Which configuration would have served a cluster or a trace better? Inputs, settings and the table of results side by side."""
