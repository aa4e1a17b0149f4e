"""When would it start if it were submitted now? Manifests become the pods that their controllers would make, and a trial decides."""
