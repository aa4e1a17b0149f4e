"""What waits, runs and is there? Gangs and nodes as the daemon counts them, as lines of a table and as JSON."""
