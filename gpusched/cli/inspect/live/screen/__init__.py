"""What stands on a terminal of so many columns? Lines made of parts of the view: pure functions, without a terminal."""
