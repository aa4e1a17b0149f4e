"""Policies of Acme."""
