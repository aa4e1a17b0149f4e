"""What ResourceQuotas leave for submitted pods, in the words of the API server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

from gpusched.advice.trial import TrialCluster
from gpusched.cel.quantities import QuantityFormatError, parse_quantity, print_amount
from gpusched.engine.objects import Obj

_COUNTS: Final = frozenset({"pods", "count/pods"})
_PARTS: Final = ("requests", "limits")


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
