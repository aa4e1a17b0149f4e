"""Which arguments of the policy serve a trace best? The space that plugins declare, the search, and the check on what it has not seen."""
