"""What do users read after a session? Phase, reason and message of every gang, queue and topology, the bindings of the plan, and when a decision may change although nothing in the cluster does."""
