"""What happens to a decision after it was made, without I/O: bind, doubt, repair, undo."""
