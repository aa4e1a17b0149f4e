"""KWOK-compatible stages: fake nodes and pods live by ``Stage`` objects instead of kubelets."""
