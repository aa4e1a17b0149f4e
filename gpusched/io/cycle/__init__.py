"""When is decided, and what becomes of the decision? A change wakes the cycle: snapshot, session, recheck, commit; faults, crashes and a changed configuration are handled here."""
