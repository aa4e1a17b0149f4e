"""How far the priority class counts that a gang names: never where a pod of it would be refused.

Kubernetes decides at admission who may use a priority class: a ResourceQuota whose scope is that
class refuses pods beyond it. Nothing decides so about a PodGroup, a Job's template or the object
of a controller that names a class. So a class that is limited counts for a gang only if all its
pods carry it themselves, for they have passed; else the gang has the priority of its pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import attrs

from gpusched.api.devices.gpu_share import shared_resource
from gpusched.api.meta.identity import ObjectKey, Rejected
from gpusched.api.meta.resources import PODS
from gpusched.api.pod.pod import Pod
from gpusched.api.policy.kinds import PriorityClass, ResourceQuota
from gpusched.base.classes import frozen
from gpusched.cache.store import KindStore
from gpusched.config.model import GroupPriority

USER_PRIORITY_MAX: Final = 1_000_000_000
"""Highest value of a PriorityClass that users may define; those above it are the system's."""


@frozen
class CountedPriority:
    """A class as it counts for a gang.

    Attributes:
        named: the class, None when it does not count.
        priority: of the gang.
        warning: why that is not what it asks for, and what to do; empty when it is.
    """

    named: PriorityClass | None
    priority: int
    warning: str = ""


class PriorityClassLimits:
    """Which classes are limited in one namespace.

    Args:
        quotas: those of the namespace that have a scope of classes.
        unreadable: names of quotas of the namespace that cannot be believed: they limit all.
        rule: whether a class that is not limited counts at once, or no further than the pods'.
    """

    def __init__(
        self,
        quotas: Sequence[ResourceQuota] = (),
        unreadable: Sequence[str] = (),
        *,
        rule: GroupPriority = "trusted",
    ) -> None:
        self._quotas = quotas
        self._unreadable = unreadable
        self._rule = rule

    def refusal_clause(self, name: str, priority: int) -> str:
        """Why only pods that carry it have a class or priority, as a clause; empty when all have."""
        if priority > USER_PRIORITY_MAX:
            return "it is a class of the system"
        for each in self._unreadable:
            return f"ResourceQuota {each} cannot be read and may limit it"
        for quota in self._quotas:
            if quota.selects(name):
                return f"ResourceQuota {quota.name} limits it"
        return ""

    def of_pods(self, pods: Sequence[Pod]) -> int:
        """The priority that pods give their gang: the highest, but a limited one only if all have it."""
        found = {(pod.priority, pod.priority_class) for pod in pods if not pod.finished}
        lowest = min(found, default=(0, ""))[0]
        return max(
            (
                value
                for value, name in found
                if value == lowest or not self.refusal_clause(name, value)
            ),
            default=0,
        )

    def count_priority(
        self, named: PriorityClass, pods: Sequence[Pod], *, field: str
    ) -> CountedPriority:
        """How far a class counts that something of a gang names.

        Args:
            named: the class.
            pods: the gang's members.
            field: where the class is named, for the remark.
        """
        why = self.refusal_clause(named.name, named.value)
        if not why and self._rule == "trusted":
            return CountedPriority(named, named.value)
        alive = [pod for pod in pods if not pod.finished]
        if alive and all(pod.priority >= named.value for pod in alive):
            return CountedPriority(named, named.value)
        own = self.of_pods(alive)
        if why:
            remark = (
                f"{field} {named.name} does not count, as {why} and not all its pods carry it: "
                f"their priority {own} counts; set priorityClassName {named.name} on the pods"
            )
            return CountedPriority(None, own, remark if alive else "")
        if own < named.value:
            remark = (
                f"{field} {named.name} counts as {own}, the priority of its pods, as the "
                f"configuration says podGroupPriority: ofPods; set it on the pods"
            )
            return CountedPriority(None, own, remark if alive else "")
        return CountedPriority(named, named.value)

    def count_number(
        self, value: int, classes: Iterable[PriorityClass], pods: Sequence[Pod]
    ) -> CountedPriority:
        """How far a number counts that a native group has beside no class that exists.

        The API server writes it there from the class, or the default one. Where nothing checked
        it, it counts no further than some class that is free to all, or than the pods' own.

        Args:
            value: of ``spec.priority``.
            classes: all that there are.
            pods: the gang's members.
        """
        alive = [pod for pod in pods if not pod.finished]
        if value <= 0 or (alive and all(pod.priority >= value for pod in alive)):
            return CountedPriority(None, value)
        free = any(
            each.value >= value and not self.refusal_clause(each.name, each.value)
            for each in classes
        )
        if free and self._rule == "trusted":
            return CountedPriority(None, value)
        own = min(value, self.of_pods(alive))
        remark = (
            f"priority {value} does not count, as no PriorityClass gives it to all: the priority "
            f"{own} of its pods counts; name a priorityClassName"
        )
        return CountedPriority(None, own, remark if alive else "")

    def admission_clause(self, name: str, pods: Sequence[Pod]) -> str:
        """Why pods that do not exist yet would be refused this class, as a clause; empty if not."""
        for each in self._unreadable:
            return f"ResourceQuota {each} cannot be read and may limit it"
        for quota in self._quotas:
            if not quota.selects(name):
                continue
            for resource, left in quota.left:
                wanted = sum(_quota_request(pod, resource) for pod in pods)
                if wanted > left:
                    return f"ResourceQuota {quota.name} has not enough {resource} left for its pods"
        return ""


class QuotaStore(KindStore[ResourceQuota]):
    """Quotas, and what they limit by namespace."""

    def __init__(self) -> None:
        super().__init__()
        self._names: dict[str, set[ObjectKey]] = {}
        self._limits: dict[str, PriorityClassLimits] = {}
        self.rule: GroupPriority = "trusted"
        """``podGroupPriority`` of the configuration; use ``use_rule`` to change it."""
        self._free = PriorityClassLimits()

    def use_rule(self, rule: GroupPriority) -> None:
        """What counts from now on where no quota says anything."""
        self.rule = rule
        self._free = PriorityClassLimits(rule=rule)
        self._limits.clear()

    def put(self, key: ObjectKey, item: ResourceQuota | Rejected) -> None:
        """It is there, in this form."""
        super().put(key, item)
        self._names.setdefault(key.namespace, set()).add(key)
        self._limits.pop(key.namespace, None)

    def drop(self, key: ObjectKey) -> None:
        """Drop the object of this key, which is gone."""
        super().drop(key)
        names = self._names.get(key.namespace, set())
        names.discard(key)
        if not names:
            self._names.pop(key.namespace, None)
        self._limits.pop(key.namespace, None)

    def namespace_limits(self, namespace: str) -> PriorityClassLimits:
        """Of the gangs of a namespace."""
        names = self._names.get(namespace)
        if not names:
            return self._free
        if namespace not in self._limits:
            quotas = [self.items[key] for key in sorted(names) if key in self.items]
            self._limits[namespace] = PriorityClassLimits(
                [quota for quota in quotas if quota.classes],
                [key.name for key in sorted(names) if key in self.rejected],
                rule=self.rule,
            )
        return self._limits[namespace]


class PriorityClassStore(KindStore[PriorityClass]):
    """Priority classes by name, with ``preemptible`` as their annotation or the configuration has it."""

    def __init__(self) -> None:
        super().__init__()
        self._as_read: dict[ObjectKey, PriorityClass] = {}
        self.non_preemptible_from: int | None = None
        """``nonPreemptibleFromPriority`` of the configuration; ``use_non_preemptible_from`` sets it."""

    def use_non_preemptible_from(self, value: int | None) -> None:
        """Gangs of classes of this value and above are not preemptible unless it is said of them."""
        self.non_preemptible_from = value
        for key, item in self._as_read.items():
            super().put(key, self._configured(item))

    def put(self, key: ObjectKey, item: PriorityClass | Rejected) -> None:
        """It is there, in this form."""
        if isinstance(item, Rejected):
            self._as_read.pop(key, None)
            super().put(key, item)
            return
        self._as_read[key] = item
        super().put(key, self._configured(item))

    def drop(self, key: ObjectKey) -> None:
        """Drop the object of this key, which is gone."""
        self._as_read.pop(key, None)
        super().drop(key)

    def _configured(self, item: PriorityClass) -> PriorityClass:
        border = self.non_preemptible_from
        if item.preemptible is not None or border is None or item.value < border:
            return item
        return attrs.evolve(item, preemptible=False)


def changes_priority(known: ResourceQuota | None, item: object) -> bool:
    """Whether gangs of a namespace may stand otherwise after a quota changed so."""
    if isinstance(item, ResourceQuota) and not item.classes:
        return known is not None and bool(known.classes)
    if isinstance(item, ResourceQuota) and known is not None:
        return (known.classes, known.left) != (item.classes, item.left)
    return True


def _quota_request(pod: Pod, resource: str) -> int:
    """What one pod takes of a quota's resource; 0 for what pods are not asked for here."""
    if resource in (PODS, f"count/{PODS}"):
        return 1
    name = resource.removeprefix("requests.")
    if name == shared_resource() and pod.pod_class.share is not None:
        return 0
    return pod.pod_class.requests.get(name)
