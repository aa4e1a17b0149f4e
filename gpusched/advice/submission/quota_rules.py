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

    Quotas with scopes are not looked at.

    Args:
        trial: the cluster, without the pods.
        pods: of one namespace.
    """
    namespace = pods[0]["metadata"].get("namespace") if pods else None
    for quota in trial.objects.all("resourcequotas"):
        spec, status = quota.get("spec") or {}, quota.get("status") or {}
        if quota["metadata"].get("namespace") != namespace:
            continue
        if spec.get("scopes") or spec.get("scopeSelector"):
            continue
        hard, used = status.get("hard") or spec.get("hard") or {}, status.get("used") or {}
        try:
            over = _exceeded(pods, hard, used)
        except QuantityFormatError:
            continue  # what is no amount is refused for itself
        if over:
            asked, held, limits = (",".join(texts) for texts in zip(*over, strict=True))
            yield (
                f"exceeded quota: {quota['metadata']['name']}, requested: {asked}, used: {held}, limited: "
                f"{limits}: not all of its pods are made before others end or the quota is raised"
            )


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
