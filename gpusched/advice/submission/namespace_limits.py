"""What quotas and limit ranges of a namespace do with submitted pods, in the words of the API server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

from gpusched.advice.trial import TrialCluster
from gpusched.cel.quantities import QuantityFormatError, parse_quantity, print_amount
from gpusched.engine.objects import Obj

_COUNTS: Final = frozenset({"pods", "count/pods"})
_PARTS: Final = ("requests", "limits")
LIMIT_RANGE: Final = "LimitRange"


def quota_faults(trial: TrialCluster, pods: Sequence[Obj]) -> Iterator[str]:
    """Quotas that do not admit all of these pods.

    A quota with scopes counts those of the pods that are within all of them.

    Args:
        trial: the cluster, without the pods.
        pods: of one namespace, with the names of their priority classes.
    """
    namespace = pods[0]["metadata"].get("namespace") if pods else None
    for quota in trial.objects.all("resourcequotas"):
        spec, status = quota.get("spec") or {}, quota.get("status") or {}
        if quota["metadata"].get("namespace") != namespace:
            continue
        counted = [pod for pod in pods if _is_within_scopes(pod["spec"], spec)]
        hard, used = status.get("hard") or spec.get("hard") or {}, status.get("used") or {}
        try:
            over = _exceeded(counted, hard, used)
        except QuantityFormatError:
            continue  # what is no amount is refused for itself
        if over:
            asked, held, limits = (",".join(texts) for texts in zip(*over, strict=True))
            yield (
                f"exceeded quota: {quota['metadata']['name']}, requested: {asked}, used: {held}, limited: "
                f"{limits}: not all of its pods are made before others end or the quota is raised"
            )


def _is_within_scopes(pod: Obj, quota: Obj) -> bool:
    terms = [{"scopeName": name, "operator": "Exists"} for name in quota.get("scopes") or ()]
    terms += (quota.get("scopeSelector") or {}).get("matchExpressions") or ()
    return all(_is_within_scope(pod, term) for term in terms)


def _is_within_scope(pod: Obj, term: Obj) -> bool:
    """Whether a pod's spec is within one scope; none is within a scope that is not known."""
    match term.get("scopeName"):
        case "Terminating":
            return pod.get("activeDeadlineSeconds") is not None
        case "NotTerminating":
            return pod.get("activeDeadlineSeconds") is None
        case "BestEffort":
            return _is_best_effort(pod)
        case "NotBestEffort":
            return not _is_best_effort(pod)
        case "PriorityClass":
            return _is_of_classes(pod.get("priorityClassName") or "", term)
        case "CrossNamespacePodAffinity":
            return any(
                each.get("namespaces") or each.get("namespaceSelector") is not None
                for each in _affinity_terms(pod.get("affinity") or {})
            )
    return False


def _is_best_effort(pod: Obj) -> bool:
    """Whether no container asks for processors or memory; GPUs do not count for that."""
    containers = [*(pod.get("containers") or ()), *(pod.get("initContainers") or ())]
    return not any(
        _amount(each, part, name)
        for each in containers
        for part in _PARTS
        for name in ("cpu", "memory")
    )


def _is_of_classes(name: str, term: Obj) -> bool:
    values = term.get("values") or ()
    match term.get("operator"):
        case "In":
            return name in values
        case "NotIn":
            return name not in values
        case "Exists":
            return bool(name)
        case "DoesNotExist":
            return not name
    return False


def _affinity_terms(affinity: Obj) -> Iterator[Obj]:
    """Terms about other pods, required and preferred."""
    for kind in ("podAffinity", "podAntiAffinity"):
        part = affinity.get(kind) or {}
        yield from part.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        for each in part.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
            yield each.get("podAffinityTerm") or {}


def _exceeded(
    pods: Sequence[Obj], hard: Mapping[str, Any], used: Mapping[str, Any]
) -> list[tuple[str, str, str]]:
    """What is asked for, used and allowed of each resource of which too much is asked for."""
    found = []
    for name, limit in sorted(hard.items()):
        asked = (
            Fraction(len(pods)) if name in _COUNTS else sum(_pod_amounts(pods, name), Fraction(0))
        )
        held = parse_quantity(used.get(name, 0))
        if asked and held + asked > parse_quantity(limit):
            found.append(
                (f"{name}={print_amount(asked)}", f"{name}={used.get(name, 0)}", f"{name}={limit}")
            )
    return found


def _pod_amounts(pods: Iterable[Obj], name: str) -> Iterator[Fraction]:
    """What each pod asks for of a resource of a quota: all containers, or the largest before them."""
    part, dot, resource = name.partition(".")
    if not dot or part not in _PARTS:
        part, resource = "requests", name
    for pod in pods:
        spec = pod.get("spec") or {}
        running = [_amount(each, part, resource) for each in spec.get("containers") or ()]
        first = [_amount(each, part, resource) for each in spec.get("initContainers") or ()]
        yield max(sum(running, Fraction(0)), *first, Fraction(0))


def _amount(container: Mapping[str, Any], part: str, resource: str) -> Fraction:
    """An amount of a container; what requests leave out is as the limits have it."""
    resources = container.get("resources") or {}
    found = (resources.get(part) or {}).get(resource)
    if found is None and part == "requests":
        found = (resources.get("limits") or {}).get(resource)
    return parse_quantity(found) if found is not None else Fraction(0)


# -- limit ranges ----------------------------------------------------------------------------
def with_limit_defaults(pod: Obj, ranges: Sequence[Obj]) -> Obj:
    """A pod whose containers have the requests and limits that the namespace gives those that name none.

    Args:
        pod: that is submitted, or made of what is.
        ranges: LimitRanges of its namespace, by name.
    """
    limits = [each for _, each in _limits_of(ranges, "Container")]
    spec = pod.get("spec")
    if not limits or not isinstance(spec, dict):
        return pod
    filled = {
        part: [_with_defaults(each, limits) if isinstance(each, dict) else each for each in found]
        for part in _CONTAINERS
        if isinstance(found := spec.get(part), list)
    }
    return {**pod, "spec": {**spec, **filled}}


def limit_faults(pod: Obj, ranges: Sequence[Obj]) -> Iterator[str]:
    """What LimitRanges refuse of a pod that has their defaults.

    Args:
        pod: with the defaults.
        ranges: LimitRanges of its namespace, by name.
    """
    spec = _dict(pod.get("spec"))
    try:
        for name, limit in _limits_of(ranges, "Container"):
            for part in _CONTAINERS:
                for each in _dicts(spec.get(part)):
                    asked, given = (_amounts(each, kind) for kind in _PARTS)
                    yield from (f"LimitRange {name}: {why}" for why in _bounds(limit, asked, given))
        for name, limit in _limits_of(ranges, "Pod"):
            asked, given = (_pod_total(spec, kind) for kind in _PARTS)
            yield from (f"LimitRange {name}: {why}" for why in _bounds(limit, asked, given))
    except QuantityFormatError:
        return  # what is no amount is refused for itself


_CONTAINERS: Final = ("containers", "initContainers")
_AMOUNTS: Final = ("min", "max", "default", "defaultRequest", "maxLimitRequestRatio")


def _limits_of(ranges: Sequence[Obj], kind: str) -> Iterator[tuple[str, Obj]]:
    """Limits of one type, each with the name of its range and with what the API server fills in."""
    for each in ranges:
        for limit in _dicts(_dict(each.get("spec")).get("limits")):
            if limit.get("type") != kind:
                continue
            amounts = {name: _dict(limit.get(name)) for name in _AMOUNTS}
            if kind == "Container":
                amounts["default"] = {**amounts["max"], **amounts["default"]}
                amounts["defaultRequest"] = {
                    **amounts["min"], **amounts["default"], **amounts["defaultRequest"],
                }  # fmt: skip
            yield str(each["metadata"]["name"]), {**limit, **amounts}


def _dict(value: object) -> dict[str, Any]:
    """What a user wrote, where it is a mapping; else an empty one, as it is refused for itself."""
    return value if isinstance(value, dict) else {}


def _dicts(value: object) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _with_defaults(container: Obj, limits: Sequence[Obj]) -> Obj:
    resources = _dict(container.get("resources"))
    given = _dict(resources.get("limits"))
    asked = {**given, **_dict(resources.get("requests"))}
    for limit in limits:
        given = {**limit["default"], **given}
        asked = {**limit["defaultRequest"], **asked}
    return {**container, "resources": {**resources, "limits": given, "requests": asked}}


def _amounts(container: Obj, part: str) -> dict[str, Any]:
    resources = _dict(container.get("resources"))
    found = _dict(resources.get(part))
    if part == "requests":
        found = {**_dict(resources.get("limits")), **found}
    return found


def _parsed(amount: object) -> Fraction:
    if not isinstance(amount, str | int | float):
        raise QuantityFormatError(f"{amount!r} is no quantity")
    return parse_quantity(amount)


def _pod_total(spec: Obj, part: str) -> dict[str, str]:
    """What a pod asks for: containers that run together, or the most that is needed before them."""
    total: dict[str, Fraction] = {}
    first: dict[str, Fraction] = {}
    for each in _dicts(spec.get("initContainers")):
        needed = _sum(total, each, part)
        if each.get("restartPolicy") == "Always":
            total = needed
        first |= {name: max(first.get(name, amount), amount) for name, amount in needed.items()}
    for each in _dicts(spec.get("containers")):
        total = _sum(total, each, part)
    most = {
        name: max(total.get(name, Fraction(0)), first.get(name, Fraction(0)))
        for name in {**first, **total}
    }
    return {name: print_amount(amount) for name, amount in most.items()}


def _sum(amounts: Mapping[str, Fraction], container: Obj, part: str) -> dict[str, Fraction]:
    own = _amounts(container, part)
    return {
        **amounts,
        **{name: amounts.get(name, Fraction(0)) + _parsed(amount) for name, amount in own.items()},
    }


def _bounds(limit: Obj, asked: Mapping[str, Any], given: Mapping[str, Any]) -> Iterator[str]:
    """What is outside one limit.

    Args:
        limit: of a LimitRange.
        asked: requests of a container or a pod.
        given: its limits.
    """
    what = limit["type"]
    for name, text in sorted(limit["min"].items()):
        least, head = _parsed(text), f"minimum {name} usage per {what} is {text}"
        if name not in asked:
            yield f"{head}.  No request is specified"
        elif _parsed(asked[name]) < least:
            yield f"{head}, but request is {asked[name]}"
        elif _parsed(given.get(name, text)) < least:
            yield f"{head}, but limit is {given[name]}"
    for name, text in sorted(limit["max"].items()):
        most, head = _parsed(text), f"maximum {name} usage per {what} is {text}"
        if name not in given:
            yield f"{head}.  No limit is specified"
        elif _parsed(given[name]) > most:
            yield f"{head}, but limit is {given[name]}"
        elif _parsed(asked.get(name, text)) > most:
            yield f"{head}, but request is {asked[name]}"
    yield from _ratio_faults(limit, asked, given)


def _ratio_faults(limit: Obj, asked: Mapping[str, Any], given: Mapping[str, Any]) -> Iterator[str]:
    what = limit["type"]
    for name, text in sorted(limit["maxLimitRequestRatio"].items()):
        head = f"{name} max limit to request ratio per {what} is {text}, but"
        request, most = _parsed(asked.get(name, 0)), _parsed(given.get(name, 0))
        if not request:
            yield f"{head} no request is specified or request is 0"
        elif not most:
            yield f"{head} no limit is specified or limit is 0"
        elif most / request > _parsed(text):
            yield f"{head} provided ratio is {float(most / request):f}"
