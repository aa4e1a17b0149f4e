"""One cycle of decisions on an immutable snapshot."""
