"""Which rules do all kinds share? Metadata, quantities, selectors, times, JSON patches, field errors and Status answers, in the words of the Kubernetes API."""
