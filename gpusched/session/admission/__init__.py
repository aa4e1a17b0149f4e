"""Which gangs may ask for places? Those that their queue, their age and their quota admit."""
