"""Does what was expected hold? Expectations are compared with objects, workloads, events and statistics while the scenario runs."""
