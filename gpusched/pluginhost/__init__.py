"""Finds, builds and contains the policies and actions that the configuration names."""
