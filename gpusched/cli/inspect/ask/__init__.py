"""Commands that answer questions about what would happen: what would help, when would it start."""
