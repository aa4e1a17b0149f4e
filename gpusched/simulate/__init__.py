"""Running the whole daemon in virtual time."""
