"""Who may do what: users, rules, bindings, tokens and the reviews that ask about them."""
