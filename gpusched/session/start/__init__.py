"""How is one gang started? Its place, else moves of others, a nomination, or a reservation."""
