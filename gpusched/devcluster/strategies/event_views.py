"""Events have two groups and one store: the core form is stored, the newer one is a view."""

from __future__ import annotations

from typing import Any, Final

Obj = dict[str, Any]

_PAIRS: Final = (
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
)
_TO_NEW: Final = dict(_PAIRS)
_TO_CORE: Final = {new: core for core, new in _PAIRS}


def to_new_group(obj: Obj) -> Obj:
    """Return a stored core event as events.k8s.io/v1 shows it."""
    new = {_TO_NEW.get(key, key): value for key, value in obj.items()}
    new["apiVersion"] = "events.k8s.io/v1"
    return new


def to_core(obj: Obj) -> Obj:
    """Return an events.k8s.io/v1 event as it is stored."""
    core = {_TO_CORE.get(key, key): value for key, value in obj.items()}
    core["apiVersion"] = "v1"
    return core
