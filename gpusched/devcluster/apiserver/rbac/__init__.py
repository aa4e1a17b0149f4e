"""Who may do what? Users, tokens, roles and bindings, and the reviews that ask about them."""
