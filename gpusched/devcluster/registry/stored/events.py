"""Events of two groups in one store: the core form is stored, events.k8s.io/v1 is a view of it.

The newer group requires more fields, the older one prints what is unset.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from gpusched.devcluster.apimachinery.field_errors import FieldError, invalid, required
from gpusched.devcluster.apimachinery.metadata import key_errors
from gpusched.devcluster.registry.strategy import Strategy

# ruff: noqa: ARG002  # strategies share one interface, and few kinds need all of it


Obj = dict[str, Any]

_NULLS: Final = ("firstTimestamp", "lastTimestamp", "eventTime")
_EMPTIES: Final = ("reportingComponent", "reportingInstance")
_MESSAGE_MAX: Final = 1024
_NAME_MAX: Final = 128
_SERIES_MIN: Final = 2
_SHOWN: Final = {"reportingComponent": "reportingController"}
_SEALED: Final = (
    "involvedObject",
    "reason",
    "message",
    "source",
    "firstTimestamp",
    "lastTimestamp",
    "count",
    "reason",
    "type",
    "eventTime",
    "action",
    "related",
    "reportingComponent",
    "reportingInstance",
)
"""Fields that updates in the newer group may not change, in the server's order."""


class EventStrategy(Strategy):
    """Events of both groups in their stored form, the core one."""

    create_on_update = True
    knows_all = True
    default_propagation = "None"

    def default(self, obj: Obj) -> None:
        """Print unset times as null and unset reporters as empty."""
        obj.setdefault("source", {})
        for key in _NULLS:
            obj.setdefault(key, None)
        for key in _EMPTIES:
            obj.setdefault(key, "")

    def validate(self, obj: Obj) -> list[FieldError]:
        """Check what an event about an object must say; stricter when it has an eventTime."""
        namespace = obj["metadata"].get("namespace", "")
        about = (obj.get("involvedObject") or {}).get("namespace") or ""
        if obj.get("eventTime") is None:
            fits = (about or "default") == namespace
        else:
            fits = bool(about) or namespace in {"default", "kube-system"}
        errors: list[FieldError] = []
        if not fits:
            why = "does not match event.namespace"
            errors.append(invalid("involvedObject.namespace", about, why))
        return errors if obj.get("eventTime") is None else [*errors, *_reporter_errors(obj)]

    def validate_update(self, new: Obj, old: Obj) -> list[FieldError]:
        """Check the later state like a new event."""
        return self.validate(new)


def _reporter_errors(obj: Obj) -> Iterator[FieldError]:
    reporter = obj.get("reportingComponent") or ""
    if not reporter:
        yield required("reportingController")
    yield from key_errors(reporter, "reportingController")
    for key in ("reportingInstance", "action", "reason"):
        value = obj.get(key) or ""
        if not value:
            yield required(key)
        if len(value.encode()) > _NAME_MAX:
            yield invalid(key, "", f"can have at most {_NAME_MAX} characters")
    if len((obj.get("message") or "").encode()) > _MESSAGE_MAX:
        yield invalid("message", "", f"can have at most {_MESSAGE_MAX} characters")


class EventsGroupStrategy(EventStrategy):
    """Events as events.k8s.io/v1 takes them: nothing of the older group, and nothing changes."""

    def validate(self, obj: Obj) -> list[FieldError]:
        """Check a new event; what only the older group uses must stay unset."""
        errors = [*super().validate(obj), *_series_errors(obj)]
        if obj.get("eventTime") is None:
            errors.append(required("eventTime"))
        kind = obj.get("type") or ""
        if kind not in {"Normal", "Warning"}:
            errors.append(invalid("type", "", f"has invalid value: {kind}"))
        errors += [
            invalid(key, "", "needs to be unset")
            for key in ("firstTimestamp", "lastTimestamp", "count", "source")
            if obj.get(key)
        ]
        return errors

    def validate_update(self, new: Obj, old: Obj) -> list[FieldError]:
        """Allow a new state of the series only."""
        errors = EventStrategy.validate(self, new)
        if new.get("series") != old.get("series"):
            errors += _series_errors(new)
        return errors + [
            invalid(_SHOWN.get(key, key), new.get(key), "field is immutable")
            for key in _SEALED
            if new.get(key) != old.get(key)
        ]


def _series_errors(obj: Obj) -> Iterator[FieldError]:
    series = obj.get("series")
    if series is None:
        return
    if (series.get("count") or 0) < _SERIES_MIN:
        yield invalid("series.count", "", f"should be at least {_SERIES_MIN}")
    if not series.get("lastObservedTime"):
        yield required("series.lastObservedTime")


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
