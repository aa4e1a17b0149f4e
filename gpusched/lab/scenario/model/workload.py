"""A workload in short, as ``submit`` says it: what is drawn anew for each repeat, and what is not."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from statistics import NormalDist
from typing import Any, Final, TypeAlias, TypeVar, cast

import attrs

from gpusched.base.classes import frozen

T = TypeVar("T")
_Z95: Final = NormalDist().inv_cdf(0.95)


@frozen
class UniformDraw:
    """``{from: LOW, to: HIGH}``: every value between them is as likely.

    Attributes:
        whole: whole numbers only, both ends included.
    """

    low: float
    high: float
    whole: bool = True

    def draw(self, chance: random.Random) -> float:
        """One value drawn from the distribution."""
        if self.whole:
            return chance.randint(round(self.low), round(self.high))
        return chance.uniform(self.low, self.high)


@frozen
class ChoiceDraw:
    """``{choice: [...], weights: [...]}``."""

    values: tuple[Any, ...]
    weights: tuple[float, ...]

    def draw(self, chance: random.Random) -> Any:
        """One value drawn from the distribution."""
        return chance.choices(self.values, self.weights)[0]


@frozen
class LogNormalDraw:
    """``{median: M, p95: P}``: the logarithm is normal, so that a few are very long."""

    median: float
    p95: float

    def draw(self, chance: random.Random) -> float:
        """One value, at least 1."""
        sigma = math.log(self.p95 / self.median) / _Z95
        return max(1, round(chance.lognormvariate(math.log(self.median), sigma)))


Draw: TypeAlias = UniformDraw | ChoiceDraw | LogNormalDraw
Drawn: TypeAlias = T | Draw
"""A value, or how to draw one."""


@frozen(kw_only=True)
class WorkloadTopology:
    """Topology that pods want: names of levels or labels, empty for none; seconds."""

    required: str = ""
    preferred: str = ""
    max_wait_s: float | None = None

    def __bool__(self) -> bool:
        return self != _NO_WISH


_NO_WISH: Final = WorkloadTopology()


@frozen(kw_only=True)
class GpuRequest:
    """What each pod asks for beside CPU and memory.

    Attributes:
        fraction: of one GPU, such as ``0.25``; memory: of one GPU's memory. Empty for none.
        mig: profile of a slice such as ``1g.5gb``, and ``slices`` of it; empty for none.
        resources: other extended resources by name.
    """

    fraction: Drawn[str] = ""
    memory: Drawn[str] = ""
    mig: Drawn[str] = ""
    slices: Drawn[int] = 1
    resources: Mapping[str, str] = attrs.Factory(dict)


@frozen(kw_only=True)
class SubGroupSpec:
    """A sub-group in a tree: one of roles, or one that holds others.

    Attributes:
        parent: that it is in, empty at the top.
        min_sub_groups: how many of those in it must be complete; None for all.
        topology: of its pods; a role's own counts where this says nothing.
    """

    name: str
    parent: str = ""
    min_sub_groups: int | None = None
    topology: WorkloadTopology = _NO_WISH


@frozen(kw_only=True)
class PodRole:
    """Some of the pods of a PodGroup that are alike.

    Attributes:
        min_member: None where all its pods are needed.
        sub_group: empty for none; roles of one sub-group share it.
        topology: of the sub-group.
    """

    name: str
    pods: int = 1
    gpus: int = 0
    cpu: str = "1"
    memory: str = "1Gi"
    min_member: int | None = None
    sub_group: str = ""
    topology: WorkloadTopology = _NO_WISH


@frozen(kw_only=True)
class WorkloadSpec:
    """A workload in short form, as docs/scenarios.md has it; times are seconds, None where not given.

    Attributes:
        expected: how long it says it will run; True for as long as it does.
        suspend: None for the rule: suspended where it is a Job that names a queue.
        klass: label by which waits are told apart.
        notes: annotations of the pods by key, from ``startAfter`` and the like.
    """

    name: str
    kind: str = "Job"
    namespace: str = "default"
    pods: Drawn[int] = 1
    min_member: Drawn[int] | None = None
    min_sub_groups: int | None = None
    gpus: Drawn[int] = 0
    cpu: Drawn[str] = "1"
    memory: Drawn[str] = "1Gi"
    share: GpuRequest = GpuRequest()
    queue: Drawn[str] = ""
    priority: Drawn[str] = ""
    preemptible: bool | None = None
    min_runtime_s: float | None = None
    run_for_s: Drawn[float] | None = None
    expected: Drawn[float] | bool | None = None
    topology: WorkloadTopology = _NO_WISH
    deadline_s: float | None = None
    backoff_limit: int | None = None
    suspend: bool | None = None
    klass: Drawn[str] = ""
    notes: Mapping[str, str] = attrs.Factory(dict)
    labels: Mapping[str, str] = attrs.Factory(dict)
    annotations: Mapping[str, str] = attrs.Factory(dict)
    node_selector: Mapping[str, str] = attrs.Factory(dict)
    tolerations: tuple[dict[str, Any], ...] = ()
    roles: tuple[PodRole, ...] = ()
    sub_groups: tuple[SubGroupSpec, ...] = ()


def drawn_attributes(thing: object) -> tuple[str, ...]:
    """Names of the attributes that are drawn, in the order of the class."""
    fields = attrs.fields_dict(cast("Any", type(thing)))
    return tuple(name for name in fields if isinstance(getattr(thing, name), Draw))
