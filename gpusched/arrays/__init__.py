"""Arithmetic on columns: node x resource, int64, never a float."""
