"""What may each user do? Users, tokens, roles and bindings, and the reviews that ask about them."""
