"""What a case is made of, and what was seen when it was played."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

GPU: Final = "nvidia.com/gpu"
SOFT_BELOW: Final = 100
"""Gangs of a priority below this may be evicted unless the case says otherwise."""
DEFAULT_PRIORITY: Final = 50


@attrs.frozen
class Amount:
    """GPUs, thousandths of a CPU and bytes; None is unstated, which no limit ever is of zero."""

    gpus: int | None = None
    cpu: int | None = None
    memory: int | None = None

    def base_units(self) -> dict[str, int]:
        """By name of the resource; only what is stated."""
        pairs = ((GPU, self.gpus), ("cpu", self.cpu), ("memory", self.memory))
        return {name: amount for name, amount in pairs if amount is not None}

    def quantities(self) -> dict[str, str]:
        """The same as Kubernetes writes it."""
        return {
            name: f"{amount}m" if name == "cpu" else str(amount)
            for name, amount in self.base_units().items()
        }


@attrs.frozen(kw_only=True)
class CaseNode:
    """A node; CPU and memory are plenty unless told."""

    name: str
    offers: Amount
    pods: int = 110
    labels: Mapping[str, str] = attrs.Factory(dict)


@attrs.frozen(kw_only=True)
class CaseQueue:
    """A queue; what is None is left out of its spec."""

    name: str
    parent: str = ""
    guarantee: Amount = Amount()
    deserved: Amount = Amount()
    capability: Amount = Amount()
    weight: int | None = None
    priority: int | None = None
    reclaimable: bool | None = None
    ordering: str = ""
    stop: str = ""
    min_runtime_s: int = 0


@attrs.frozen(kw_only=True)
class CasePods:
    """Equal pods of a gang: bound to ``node``, or waiting when it is empty.

    Attributes:
        leaving: they are bound and being deleted; they go away after half the time.
        gated: they wait behind a scheduling gate.
        priority: of these pods alone; None for the gang's.
        asks: of these pods alone; None for the gang's.
    """

    count: int = 1
    node: str = ""
    leaving: bool = False
    gated: bool = False
    sub_group: str = ""
    priority: int | None = None
    asks: Amount | None = None


@attrs.frozen(kw_only=True)
class Wanted:
    """What a gang must have come to.

    Attributes:
        runs: least and most pods that hold a node in the end.
        evicted: least and most pods that were taken off their nodes.
        nodes: nodes that may be used; with ``exact`` so many pods on each.
        exact: pods on each node, empty when the case does not pin them.
        together: label of nodes in whose one value all of them sit, empty for none.
    """

    runs: tuple[int, int]
    evicted: tuple[int, int]
    nodes: frozenset[str] = frozenset()
    exact: Mapping[str, int] = attrs.Factory(dict)
    together: str = ""


@attrs.frozen(kw_only=True)
class CaseGang:
    """A PodGroup with its pods; older than the gangs after it."""

    name: str
    queue: str
    asks: Amount
    pods: tuple[CasePods, ...]
    wanted: Wanted
    min_member: int | None = None
    priority: int = DEFAULT_PRIORITY
    preemptible: bool | None = None
    sub_groups: Mapping[str, int] = attrs.Factory(dict)
    min_sub_groups: int | None = None
    on_nodes: tuple[str, ...] = ()
    node_labels: Mapping[str, str] = attrs.Factory(dict)
    apart: bool = False
    never_preempts: bool = False
    required: str = ""
    preferred: str = ""
    min_runtime_s: int = 0
    keep: int | None = None

    @property
    def may_be_evicted(self) -> bool:
        """As told, else by priority."""
        if self.preemptible is not None:
            return self.preemptible
        return self.priority < SOFT_BELOW

    @property
    def needed(self) -> int:
        """Members that must run together: all of them unless told."""
        if self.min_member is not None:
            return self.min_member
        return sum(pods.count for pods in self.pods)


@attrs.frozen(kw_only=True)
class Total:
    """Pods of several gangs together: so many run, or so many were evicted."""

    what: str
    gangs: tuple[str, ...]
    count: tuple[int, int]


@attrs.frozen(kw_only=True)
class Case:
    """A situation and what must come of it.

    Attributes:
        family: name of the file.
        levels: labels of the topology, widest first; empty for none.
        seconds: virtual time until it is judged.
        again: evicted pods are made anew by their owner, as waiting ones.
        because: why the outcome is this, where peers may differ.
        off: reason why a way of playing does not agree yet, by its name.
    """

    family: str
    name: str
    nodes: tuple[CaseNode, ...]
    queues: tuple[CaseQueue, ...]
    gangs: tuple[CaseGang, ...]
    totals: tuple[Total, ...] = ()
    levels: tuple[str, ...] = ()
    seconds: int = 60
    again: bool = True
    because: str = ""
    off: Mapping[str, str] = attrs.Factory(dict)

    @property
    def title(self) -> str:
        """Family and name, unique."""
        return f"{self.family}/{self.name}"


@attrs.define(kw_only=True)
class Seen:
    """What came of a gang: node of each pod that holds one, and how many were taken off."""

    nodes: list[str] = attrs.Factory(list)
    evicted: int = 0
