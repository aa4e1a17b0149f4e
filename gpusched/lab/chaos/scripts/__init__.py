"""Which steps and faults does a chaos run play? Scripts, drawn from seeds, and the shortest script that still fails."""
