"""Labels and annotations under ``gpusched.io/`` that mean nothing: misspelt ones, mostly, passed over by the daemon."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any, Final

PREFIX: Final = "gpusched.io/"
KNOWN_KEYS: Final = frozenset(
    PREFIX + name
    for name in (
        # what users write on pods, Jobs, groups and their templates
        "pod-group", "queue", "role", "sub-group", "min-member", "min-task-member", "min-resources",
        "min-sub-groups", "sub-groups", "rank", "preemptible", "min-runtime", "expected-duration",
        "schedule-timeout", "checkpoint-interval", "topology-required", "topology-preferred",
        "topology-max-wait", "gpu-fraction", "gpu-memory", "gpu-types", "devices",
        # what gpusched writes
        "plan", "slots", "fence", "seal", "proof", "turn", "parallelism", "moved", "numa", "admitted",
        "settled", "reason", "class", "stop-after", "start-after",
        # of nodes and of the embedded cluster's pods
        "rack", "block", "gpu-layout", "gpus-lost", "node-failed", "run-for", "run-speeds", "failure",
        "fail-on-attempt", "fail-chance", "fail-after", "chaos", "seal-key", "view",
        "view-machine",
    )
)  # fmt: skip
"""Every key that something reads or writes."""
_NAMED_MAX: Final = 5


def unknown_keys(objects: Iterable[dict[str, Any]]) -> list[str]:
    """A sentence for each key of some objects that means nothing, five at most."""
    return list(dict.fromkeys(_sentences(objects)))[:_NAMED_MAX]


def _sentences(objects: Iterable[dict[str, Any]]) -> Iterator[str]:
    for each in objects:
        metadata = each.get("metadata")
        for kind in ("labels", "annotations"):
            found = metadata.get(kind) if isinstance(metadata, dict) else None
            for key in sorted(found) if isinstance(found, dict) else ():
                if str(key).startswith(PREFIX) and key not in KNOWN_KEYS:
                    yield _sentence(kind.removesuffix("s"), str(key))


def _sentence(kind: str, key: str) -> str:
    like = get_close_matches(key, sorted(KNOWN_KEYS), n=1, cutoff=0.75)
    meant = f"; did you mean {like[0]}?" if like else ""
    return f"{kind} {key} means nothing to gpusched{meant}"
