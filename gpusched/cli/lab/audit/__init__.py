"""What is wrong in a live or recorded cluster? Findings with advice, from API objects alone: the invariants of gpusched.testing, and those that only an audit asks for."""
