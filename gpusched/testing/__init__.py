"""For tests of policies and of the scheduler itself: builders, and checkers of invariants."""
