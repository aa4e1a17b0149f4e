"""Why do claims find no device, and how is that told? Every device that matches a request is counted under the first cause that keeps it away."""
