"""What helps a search for devices? Bounds that need no search, nodes that are alike, devices that lie together."""
