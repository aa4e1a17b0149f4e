"""How is a decision recorded so that it can be repeated, and told in the log? Files that hold all that it read, the plan as text, one line a decision."""
