"""Which kinds are served, and what does each demand of its objects? A Strategy per kind says what create, update and status writes default, validate and keep."""
