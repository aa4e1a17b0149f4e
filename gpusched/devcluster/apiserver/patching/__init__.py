"""How does a patch change an object? JSON, merge and strategic patches, server-side apply and its record of field managers."""
