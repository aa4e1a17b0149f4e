"""Is advice right, no larger than needed, and quick? Its suggestions are carried out to see."""
