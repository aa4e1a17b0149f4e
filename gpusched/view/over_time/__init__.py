"""What the view tells of the time that has passed, and of the time to come."""
