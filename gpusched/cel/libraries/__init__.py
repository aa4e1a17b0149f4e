"""Which functions does Kubernetes add to CEL? Quantities, texts, lists, addresses, versions, and questions about rights."""
