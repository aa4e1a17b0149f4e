"""What runs now, when it ends and what it leaves then."""
