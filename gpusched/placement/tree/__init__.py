"""How are places proven best when all members are alike? Tables of least costs are merged up the topology tree."""
