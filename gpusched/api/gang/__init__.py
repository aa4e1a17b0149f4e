"""Which pods start together, and under which terms? PodGroups, and the record of where a gang is moved to."""
