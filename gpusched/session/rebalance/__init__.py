"""Whose pods are moved so that another gang fits? Gangs that start in the same session are placed anew as one batch; running gangs are consolidated when each of them has other nodes at once."""
