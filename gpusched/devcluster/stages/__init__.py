"""How do fake nodes and pods change without kubelets? By ``Stage`` objects, compatible with KWOK."""
