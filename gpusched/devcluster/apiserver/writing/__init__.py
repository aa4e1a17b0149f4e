"""How does a write become a new version of an object? Bodies are decoded, then create, update, patch, delete, bind, evict and scale."""
