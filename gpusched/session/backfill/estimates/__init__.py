"""When do gangs that wait start, how sure is that, and why has it changed? Told to people; no decision reads it."""
