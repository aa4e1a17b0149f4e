"""How is a scenario played to its end? Timeline, daemons, judge and invariants on one cluster."""
