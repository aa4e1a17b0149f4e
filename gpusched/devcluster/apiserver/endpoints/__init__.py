"""Which answer has which path? Routes, who asks, media types, verbs of resources, and paths that are no resource."""
