"""Which pods start together, and under which terms? PodGroups, the levels of the Topology that they name, and the record of where a gang is moved to."""
