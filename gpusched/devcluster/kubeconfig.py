"""The kubeconfig that lets kubectl and every client in."""

from __future__ import annotations

from typing import Final

import yaml

CONTEXT: Final = "gpusched-devcluster"


def kubeconfig_text(url: str, token: str) -> str:
    """Return a kubeconfig with one cluster, one user and one context."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": CONTEXT, "cluster": {"server": url}}],
        "users": [{"name": CONTEXT, "user": {"token": token}}],
        "contexts": [
            {
                "name": CONTEXT,
                "context": {"cluster": CONTEXT, "user": CONTEXT, "namespace": "default"},
            }
        ],
        "current-context": CONTEXT,
    }
    return yaml.safe_dump(config, sort_keys=False)
