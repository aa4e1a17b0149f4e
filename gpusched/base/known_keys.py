"""Labels and annotations under ``gpusched.io/`` that something reads or writes; any other one is misspelt, mostly."""

from __future__ import annotations

from difflib import get_close_matches
from functools import lru_cache
from typing import Final

PREFIX: Final = "gpusched.io/"
KNOWN_KEYS: Final = frozenset(
    PREFIX + name
    for name in (
        # what users write on pods, Jobs, groups and their templates
        "pod-group", "queue", "role", "sub-group", "min-member", "min-task-member", "min-resources",
        "min-sub-groups", "sub-groups", "rank", "preemptible", "min-runtime", "expected-duration",
        "schedule-timeout", "checkpoint-interval", "hold", "topology-required", "topology-preferred",
        "topology-max-wait", "advise", "gpu-fraction", "gpu-memory", "gpu-types", "devices", "user", "groups",
        # what gpusched writes
        "plan", "slots", "fence", "seal", "proof", "turn", "evictions", "parallelism", "moved", "numa", "admitted", "charged",
        "settled", "advice", "reason", "class", "stop-after", "start-after",
        # of nodes and of the embedded cluster's pods
        "rack", "block", "gpu-layout", "gpus-lost", "node-failed", "run-for", "run-speeds", "failure",
        "fail-on-attempt", "fail-chance", "fail-after", "chaos", "seal-key", "view", "view-machine", "attempt", "exit-code",
        "exit-reason", "fail-at", "mtbf", "mttr", "pull-error", "pull-for", "return-at", "run-jitter",
        "start-jitter",
        # of schedulers and priority classes in the shipped policies
        "other-scheduler", "restricted",
    )
)  # fmt: skip
"""Every key that something reads or writes."""
_QUOTED_PREFIX: Final = f'"{PREFIX}'.encode()
_KNOWN_BYTES: Final = frozenset(key.encode() for key in KNOWN_KEYS)
_KNOWN_NAMES: Final = frozenset(key.removeprefix(PREFIX).encode() for key in KNOWN_KEYS)
_NAME_MAX: Final = 64
_KEY_LENGTH_MAX: Final = len(PREFIX) + 63
"""The API server allows no longer ones."""


def may_hold_unknown_keys(raw: bytes) -> bool:
    """Whether some key of a JSON document is under our prefix and unknown; true too often at worst.

    Texts that hold JSON themselves do not count: their quotes are escaped.
    """
    found = raw.split(_QUOTED_PREFIX)
    # Most documents name no other than known ones, however often: that is seen without a closer look.
    if _KNOWN_NAMES.issuperset([each[:_NAME_MAX].partition(b'"')[0] for each in found[1:]]):
        return False
    start = raw.find(_QUOTED_PREFIX)
    while start >= 0:
        end = raw.find(b'"', start + 1)
        if end < 0:
            return False
        follows = raw[end + 1 : end + 3].lstrip()[:1]
        if follows == b":" and raw[start + 1 : end] not in _KNOWN_BYTES and _is_plain(raw, start):
            return True
        start = raw.find(_QUOTED_PREFIX, end + 1)
    return False


def _is_plain(raw: bytes, at: int) -> bool:
    """Whether the quote at a place is not escaped."""
    return raw[at - 1 : at] != b"\\"


def is_unknown_key(key: str) -> bool:
    """Whether a key is under our prefix and means nothing."""
    return key.startswith(PREFIX) and key not in KNOWN_KEYS and len(key) <= _KEY_LENGTH_MAX


@lru_cache(maxsize=256)
def unknown_key_message(kind: str, key: str) -> str:
    """That a label or annotation means nothing, and which one may have been meant."""
    like = get_close_matches(key, sorted(KNOWN_KEYS), n=1, cutoff=0.75)
    meant = f"; did you mean {like[0]}?" if like else ""
    shown = "".join(each if each.isprintable() else "?" for each in key)
    return f"{kind} {shown} means nothing to gpusched{meant}"
