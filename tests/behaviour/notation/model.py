"""What a case is made of, and what was seen when it was played."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from gpusched.config.model import Config

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
    share: str = ""
    share_mib: int = 0
    pieces: tuple[tuple[str, int], ...] = ()

    def base_units(self) -> dict[str, int]:
        """By name of the resource; only what is stated."""
        pairs = ((GPU, self.gpus), ("cpu", self.cpu), ("memory", self.memory))
        return {n: a for n, a in (*pairs, *self.pieces) if a is not None}

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
    max_runtime_s: int = 0
    max_wait_s: int = 0


@attrs.frozen(kw_only=True)
class CasePods:
    """Equal pods of a gang: bound to ``node``, or waiting when it is empty.

    Attributes:
        leaving: they are bound and being deleted; they go away after half the time.
        gated: they wait behind a scheduling gate.
        part: their role where the gang has roles, else their sub-group.
        slow: a minute passes between their being told to go and their going.
        priority: of these pods alone; None for the gang's.
        asks: of these pods alone; None for the gang's.
    """

    count: int = 1
    node: str = ""
    leaving: bool = False
    gated: bool = False
    part: str = ""
    priority: int | None = None
    asks: Amount | None = None
    never_preempts: bool = False
    slow: bool = False
    slots: str = ""


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
    """A PodGroup with its pods; older than the gangs after it.

    Attributes:
        apart: no two of its pods on one node.
        ranked: its pods carry their number as index.
        keep: pods that a PodDisruptionBudget keeps.
        at_s: when it comes, seconds after the daemon started; 0 for before it.
        lasts_s: how long its pods run; 0 for ever.
        walltime_s: how long it says that it runs.
        wait_s: how long it holds out for its preferred level.
        whole: it is disrupted as a whole or not at all.
        only_extras: members above its minimum may leave, and no others.
    """

    name: str
    queue: str
    asks: Amount
    pods: tuple[CasePods, ...]
    wanted: Wanted
    min_member: int | None = None
    priority: int = DEFAULT_PRIORITY
    preemptible: bool | None = None
    sub_groups: Mapping[str, int] = attrs.Factory(dict)
    sub_required: str = ""
    min_sub_groups: int | None = None
    on_nodes: tuple[str, ...] = ()
    node_labels: Mapping[str, str] = attrs.Factory(dict)
    apart: bool = False
    never_preempts: bool = False
    required: str = ""
    preferred: str = ""
    min_runtime_s: int = 0
    keep: int | None = None
    roles: Mapping[str, int] = attrs.Factory(dict)
    ranked: bool = False
    at_s: int = 0
    lasts_s: int = 0
    walltime_s: int = 0
    wait_s: int = 0
    timeout_s: int = 0
    checkpoint_s: int = 0
    whole: bool = False
    only_extras: bool = False

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
    """Pods of several gangs together: so many run, were evicted, or are done."""

    what: str
    gangs: tuple[str, ...]
    count: tuple[int, int]


@attrs.frozen(kw_only=True)
class Event:
    """Something happens to the cluster while the daemon runs; see ``notation``."""

    at_s: int
    verb: str
    name: str = ""
    count: int = 1
    nodes: tuple[CaseNode, ...] = ()
    queue: CaseQueue | None = None


@attrs.frozen(kw_only=True)
class Check:
    """So many pods of a gang hold a node at a moment."""

    at_s: int
    gang: str
    runs: tuple[int, int]


@attrs.frozen(kw_only=True)
class Told:
    """A condition of the gang's PodGroup gives this reason, or contains these words."""

    gang: str
    text: str
    is_reason: bool


@attrs.frozen(kw_only=True)
class Case:
    """A situation and what must come of it.

    Attributes:
        family: name of the file.
        levels: labels of the topology, widest first; empty for none.
        seconds: virtual time until it is judged.
        again: evicted pods are made anew by their owner, as waiting ones.
        moves: the action ``consolidate`` runs too, after those of the configuration.
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
    moves: bool = False
    because: str = ""
    off: Mapping[str, str] = attrs.Factory(dict)
    events: tuple[Event, ...] = ()
    checks: tuple[Check, ...] = ()
    told: tuple[Told, ...] = ()
    one_gpu: tuple[tuple[str, ...], ...] = ()
    two_gpus: tuple[tuple[str, ...], ...] = ()

    def config(self, config: Config) -> Config:
        """With which it is played."""
        actions = config.actions
        more = self.moves and "consolidate" not in actions
        return attrs.evolve(config, actions=(*actions, "consolidate")) if more else config

    @property
    def is_timed(self) -> bool:
        """Whether more happens than a first session sees."""
        late = any(gang.at_s or gang.lasts_s for gang in self.gangs)
        return bool(late or self.events or self.checks)

    def not_for(self, player: str) -> str:
        """Why a player is not to play it; empty when it is."""
        timed = "sessions know no events" if player == "session" and self.is_timed else ""
        return self.off.get(player, timed)

    @property
    def title(self) -> str:
        """Family and name, unique."""
        return f"{self.family}/{self.name}"


@attrs.define(kw_only=True)
class Seen:
    """What came of a gang.

    Attributes:
        nodes: of each pod that holds one, by name of the pod.
        evicted: how many pods were taken off their nodes.
        at: how many held a node, by second, where the case asks.
        done: how many ended well.
        told: reasons and messages of its conditions.
    """

    nodes: dict[str, str] = attrs.Factory(dict)
    evicted: int = 0
    at: dict[int, int] = attrs.Factory(dict)
    done: int = 0
    told: tuple[tuple[str, str], ...] = ()
    slots: dict[str, tuple[str, str]] = attrs.Factory(dict)
