"""What would a change do to this cluster? It is played as it is and changed, side by side from the same moment, and the two are compared."""
