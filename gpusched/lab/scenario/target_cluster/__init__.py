"""On which cluster is a scenario played? The embedded one in virtual time, or any API server in real time, behind one interface."""
