"""How a gang gets its nodes and slots: pure functions on ints and columns."""
