"""What may an object of a kind hold? Compiled OpenAPI of built-in and custom kinds: decoding, pruning, defaults, validation."""
