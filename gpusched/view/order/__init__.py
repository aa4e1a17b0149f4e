"""Where does the place of a gang that waits come from? Terms of the keys that a session sorted by, and the line that turns make."""
