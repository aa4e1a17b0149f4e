"""What happened in a run, the numbers that follow from it, and how people look at them. Pure."""
