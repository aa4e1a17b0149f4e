"""Objects that an act speaks of."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final, TypeAlias

import attrs

from gpusched.config.tree import listed, nearest
from gpusched.scenario.ground import Ground
from gpusched.scenario.model import Target

Obj: TypeAlias = dict[str, Any]
_NAMES_MAX: Final = 8


def matching(ground: Ground, target: Target) -> list[Obj]:
    """Objects that a target means, in the order of their names."""
    found = []
    for obj in ground.list(target.kind):
        meta = obj["metadata"]
        place = meta.get("namespace", "")
        if place and target.namespace != place and not _fits(target.namespace, place):
            continue
        if not _fits(target.name, meta["name"]):
            continue
        labels = meta.get("labels") or {}
        if all(labels.get(key) == value for key, value in target.labels.items()):
            found.append(obj)
    return found


def is_exact(target: Target) -> bool:
    """Whether it means one object by its name."""
    return bool(target.name) and "*" not in target.name and "*" not in target.namespace


def absent(ground: Ground, target: Target) -> str:
    """That nothing of a target is there, and what there is instead, where one may look for it."""
    near = attrs.evolve(target, name="", labels={})
    names = sorted(obj["metadata"]["name"] for obj in matching(ground, near))
    known = listed(names[:_NAMES_MAX])
    more = f" and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else ""
    return f"there is no {told(target)}: there are {known}{more}{nearest(target.name, names)}"


def told(target: Target) -> str:
    """As a sentence names it."""
    place = "" if target.namespace in {"", "default"} else f"{target.namespace}/"
    return f"{target.kind} {place}{target.name or '*'}"


def _fits(text: str, name: str) -> bool:
    return text in {"", "*", name} or _pattern(text).fullmatch(name) is not None


@lru_cache(maxsize=1024)
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(".*".join(re.escape(part) for part in text.split("*")), re.DOTALL)
