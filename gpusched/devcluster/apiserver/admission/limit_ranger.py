"""Limit ranges: what pods and volume claims get by default, and what they may ask for.

Applies on creation only: what a pod asks for never changes, and claims cannot grow here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, Final

from gpusched.cel.quantities import parse_amount, print_amount
from gpusched.devcluster.apimachinery import status
from gpusched.devcluster.apiserver.server_state import ServerState
from gpusched.devcluster.registry.kinds import Resource

Obj = dict[str, Any]

_ANNOTATION: Final = "kubernetes.io/limit-ranger"
_LIMITED: Final = frozenset({"pods", "persistentvolumeclaims"})


def limits_of_object(core: ServerState, resource: Resource, obj: Obj) -> list[Obj]:
    """Return the limits that hold for a new object, in the order of their names."""
    if resource.storage not in _LIMITED:
        return []
    ranges = core.store.collection("limitranges").scan(obj["metadata"]["namespace"])
    return [
        limit
        for _, stored in ranges
        for limit in (stored.obj.get("spec") or {}).get("limits") or ()
    ]


def apply_pod_defaults(obj: Obj, limits: list[Obj]) -> None:
    """Give the containers of a pod the requests and limits they lack, and note which."""
    spec = obj.get("spec") or {}
    of_containers = [limit for limit in limits if limit["type"] == "Container"]
    notes: list[str] = []
    for part in ("containers", "initContainers"):
        for container in spec.get(part) or ():
            notes += _complete(container, of_containers, init=part == "initContainers")
    if notes:
        annotations = obj["metadata"].setdefault("annotations", {})
        annotations[_ANNOTATION] = f"LimitRanger plugin set: {'; '.join(notes)}"


def _complete(container: Obj, limits: list[Obj], *, init: bool) -> Iterator[str]:
    resources = container.get("resources") or {}
    container["resources"] = resources
    given = resources.get("limits") or {}
    asked = {**given, **(resources.get("requests") or {})}  # requests follow limits first
    set_limits: dict[str, Any] = {}
    set_requests: dict[str, Any] = {}
    for limit in limits:
        for name, value in (limit.get("default") or {}).items():
            if name not in given:
                set_limits.setdefault(name, value)
        for name, value in (limit.get("defaultRequest") or {}).items():
            if name not in asked:
                set_requests.setdefault(name, value)
    who = f"for {'init ' if init else ''}container {container.get('name', '')}"
    if asked or set_requests:
        resources["requests"] = {**asked, **set_requests}
    if given or set_limits:
        resources["limits"] = {**given, **set_limits}
    if set_requests:
        yield f"{', '.join(sorted(set_requests))} request {who}"
    if set_limits:
        yield f"{', '.join(sorted(set_limits))} limit {who}"


def check_limits(resource: Resource, obj: Obj, limits: list[Obj]) -> None:
    """Raise StatusError 403 with all that is outside the limits."""
    faults = list(_pod_faults(obj, limits) if resource.storage == "pods" else ())
    if resource.storage == "persistentvolumeclaims":
        asked = ((obj.get("spec") or {}).get("resources") or {}).get("requests") or {}
        for limit in limits:
            if limit["type"] == "PersistentVolumeClaim":
                faults += _bounds(limit, asked, {}, with_limits=False)
    faults = list(dict.fromkeys(faults))
    if not faults:
        return
    why = faults[0] if len(faults) == 1 else f"[{', '.join(faults)}]"
    raise status.forbidden(resource.plural, resource.group, obj["metadata"]["name"], why=why)


def _pod_faults(obj: Obj, limits: list[Obj]) -> Iterator[str]:
    spec = obj.get("spec") or {}
    parts = {
        part: [container.get("resources") or {} for container in spec.get(part) or ()]
        for part in ("containers", "initContainers")
    }
    for limit in limits:
        if limit["type"] == "Container":
            for resources in (*parts["containers"], *parts["initContainers"]):
                asked, given = resources.get("requests") or {}, resources.get("limits") or {}
                yield from _bounds(limit, asked, given)
        elif limit["type"] == "Pod":
            asked, given = _total(parts, "requests"), _total(parts, "limits")
            yield from _bounds(limit, asked, given)


def _total(parts: Mapping[str, list[Obj]], key: str) -> Obj:
    """What a pod asks for: the sum of its containers, or its largest init container."""
    rows: list[Obj] = [resources.get(key) or {} for resources in parts["containers"]]
    names = sorted(set.intersection(*(set(row) for row in rows))) if rows else []
    total = {name: sum((parse_amount(row[name]) for row in rows), Fraction(0)) for name in names}
    for resources in parts["initContainers"]:
        for name, value in (resources.get(key) or {}).items():
            total[name] = max(total.get(name, Fraction(0)), parse_amount(value))
    return {name: print_amount(value) for name, value in total.items()}


def _bounds(limit: Obj, asked: Obj, given: Obj, *, with_limits: bool = True) -> Iterator[str]:
    what = limit["type"]
    for name, least in sorted((limit.get("min") or {}).items()):
        head = f"minimum {name} usage per {what} is {least}"
        if name not in asked:
            yield f"{head}.  No request is specified"
        elif parse_amount(asked[name]) < parse_amount(least):
            yield f"{head}, but request is {asked[name]}"
        elif name in given and parse_amount(given[name]) < parse_amount(least):
            yield f"{head}, but limit is {given[name]}"
    for name, most in sorted((limit.get("max") or {}).items()):
        head = f"maximum {name} usage per {what} is {most}"
        if with_limits and name not in given:
            yield f"{head}.  No limit is specified"
        elif name in given and parse_amount(given[name]) > parse_amount(most):
            yield f"{head}, but limit is {given[name]}"
        elif name in asked and parse_amount(asked[name]) > parse_amount(most):
            yield f"{head}, but request is {asked[name]}"
    yield from _ratios(limit, asked, given)


def _ratios(limit: Obj, asked: Obj, given: Obj) -> Iterator[str]:
    for name, most in sorted((limit.get("maxLimitRequestRatio") or {}).items()):
        head = f"{name} max limit to request ratio per {limit['type']} is {most}, but"
        request, bound = parse_amount(asked.get(name, 0)), parse_amount(given.get(name, 0))
        if not request:
            yield f"{head} no request is specified or request is 0"
        elif not bound:
            yield f"{head} no limit is specified or limit is 0"
        elif bound / request > parse_amount(most):
            yield f"{head} provided ratio is {float(bound / request):f}"
