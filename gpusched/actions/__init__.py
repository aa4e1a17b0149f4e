"""The verbs of a session, run in the order that the configuration names."""
