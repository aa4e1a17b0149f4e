"""Which answer has which path? Routes, authentication, media types, verbs of resources, and paths that are no resource."""
