"""Plans as JSON that is the same text for the same plan, and that people can read."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from enum import Enum
from typing import Any

import attrs

from gpusched.api.devices.slots import format_slots
from gpusched.api.meta.identity import GangKey, ObjectKey
from gpusched.api.meta.resources import Resources
from gpusched.io.decisions.file_names import FIELDS, LATER
from gpusched.session.state.plan import Plan, PodBind


def plan_as_json(plan: Plan) -> dict[str, Any]:
    """The plan as JSON values; everything in it that is to be done, in its own order.

    The status of queue ``default`` where that is no object is shown to people and written nowhere.
    """
    written = tuple(queue for queue in plan.queues if queue.uid)
    found: dict[str, Any] = _plain(attrs.evolve(plan, queues=written))
    return found


def canonical_json(plain: Mapping[str, Any]) -> bytes:
    """One line of JSON: keys sorted, no spaces, ASCII."""
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def plan_digest(body: bytes) -> str:
    """What tells two of them apart: SHA-256 in hexadecimal."""
    return hashlib.sha256(body).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, ObjectKey | GangKey):
        return "/".join(part for part in value if part)
    if isinstance(value, Resources):
        return dict(value.items)
    if isinstance(value, PodBind):
        # A bitmask of a node with more than 64 slots is no number for most readers.
        fields = {**_fields(value), "slots": format_slots(value.slots)}
        # Who pays follows from the snapshot: decisions of 0.1.0 are repeated to the byte without it.
        fields.pop("charge", None)
        return fields
    if attrs.has(type(value)):
        return _fields(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(_plain(key)): _plain(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    assert value is None or isinstance(value, str | int | float), type(value)
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value


def _fields(value: Any) -> dict[str, Any]:
    cls = type(value)
    written, later = FIELDS.get(cls, {}), LATER.get(cls, ())
    return {
        written.get(each.name, each.name): _plain(found)
        for each in attrs.fields(cls)
        if (found := getattr(value, each.name)) != each.default or each.name not in later
    }
