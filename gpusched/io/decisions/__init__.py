"""How is a decision recorded so that it can be repeated? Files that hold all that it read, and the plan as text."""
