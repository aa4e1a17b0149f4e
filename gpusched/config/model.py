"""What a configuration says once it is believed: frozen, complete, with every default filled in.

Two configurations are equal when they ask for the same; where they were written (``source`` and
lines, kept for sentences about what is found wrong later) does not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

import attrs

from gpusched.api.devices.gpu_layout import GpuLayoutCatalog
from gpusched.api.meta.gpu_resources import DEFAULT_GPU_RESOURCES, GpuResources

Argument: TypeAlias = (
    "str | int | float | bool | tuple[Argument, ...] | Mapping[str, Argument] | None"
)
"""A value as the file has it; the plugin's own argument class gives it a type."""

Solver: TypeAlias = Literal["cpsat", "greedy"]
GroupPriority: TypeAlias = Literal["trusted", "ofPods"]
GROUP_PRIORITIES: Final[tuple[GroupPriority, ...]] = ("trusted", "ofPods")
SOLVERS: Final[tuple[Solver, ...]] = ("cpsat", "greedy")


@attrs.frozen
class PluginChoice:
    """One plugin of a tier.

    Attributes:
        arguments: by the key written in the file (camelCase).
        line: where the plugin is named, counted from 1; 0 when no file names it.
        argument_lines: the line of each key of ``arguments``.
    """

    name: str
    arguments: Mapping[str, Argument] = attrs.field(factory=lambda: MappingProxyType({}))
    line: int = attrs.field(default=0, eq=False)
    argument_lines: Mapping[str, int] = attrs.field(
        factory=lambda: MappingProxyType({}), eq=False, repr=False
    )


@attrs.frozen
class PluginTier:
    """Plugins whose keys and reasons count together."""

    plugins: tuple[PluginChoice, ...]


@attrs.frozen(kw_only=True)
class PlacementConfig:
    """How placements are searched.

    Attributes:
        time_budget_s: for one problem, in seconds.
        workers: threads of the solver; more than one does not repeat exactly.
    """

    solver: Solver = "cpsat"
    time_budget_s: float = 0.5
    workers: int = 1
    seed: int = 1


@attrs.frozen(kw_only=True)
class CycleConfig:
    """When sessions run: ``debounce_s`` after a change, and every ``max_period_s`` anyway."""

    debounce_s: float = 0.02
    max_period_s: float = 10.0


@attrs.frozen(kw_only=True)
class LeaderElectionConfig:
    """The Lease that makes one daemon the active one, and its timing in seconds."""

    lease_name: str = "gpusched"
    lease_namespace: str = "gpusched-system"
    lease_duration_s: float = 15.0
    renew_deadline_s: float = 10.0
    retry_period_s: float = 2.0


@attrs.frozen(kw_only=True)
class Config:
    """Everything that ``conf/gpusched.yaml`` can say.

    Attributes:
        scheduler_names: pods with one of these ``schedulerName`` are ours.
        pod_group_priority: whether the priority class of a PodGroup counts as it is where no
            ResourceQuota limits it, or no further than the priority that its pods were admitted
            with.
        gpu_resources: extended resources that are GPUs, the one that shares are of first.
        actions: run in this order in each session.
        tiers: policies, the most important first.
        source: the file's name as the user gave it.
        action_lines: one line number an action; empty when no file names them.
        digest: SHA-256 of what the files hold in hexadecimal; empty when there is no file.
        layouts: the catalogue of GPU layouts beside the file; None for the one that comes with
            the program. What changes in it is looked at apart, see ``config.reload``.
    """

    scheduler_names: tuple[str, ...] = ("gpusched",)
    pod_group_priority: GroupPriority = "trusted"
    gpu_resources: GpuResources = DEFAULT_GPU_RESOURCES
    actions: tuple[str, ...] = ("enqueue", "allocate", "preempt", "reclaim", "backfill")
    tiers: tuple[PluginTier, ...] = (
        PluginTier(
            (
                PluginChoice("sla"),
                PluginChoice("priority"),
                PluginChoice("gang"),
                PluginChoice("quota"),
                PluginChoice("conformance"),
                PluginChoice("minruntime"),
            )
        ),
        PluginTier(
            (
                PluginChoice("predicates"),
                PluginChoice("fairshare"),
                PluginChoice("lifetime", MappingProxyType({"staleAfter": "60s"})),
                PluginChoice("drain"),
                PluginChoice("walltime", MappingProxyType({"reservations": 8})),
                PluginChoice("drf"),
                PluginChoice("topology", MappingProxyType({"compact": "gangs"})),
                PluginChoice("nodeorder", MappingProxyType({"strategy": "binpack"})),
            )
        ),
    )
    placement: PlacementConfig = PlacementConfig()
    cycle: CycleConfig = CycleConfig()
    leader_election: LeaderElectionConfig = LeaderElectionConfig()
    source: str = attrs.field(default="built-in configuration", eq=False)
    action_lines: tuple[int, ...] = attrs.field(default=(), eq=False, repr=False)
    digest: str = attrs.field(default="", eq=False, repr=False)
    layouts: GpuLayoutCatalog | None = attrs.field(default=None, eq=False, repr=False)

    def at(self, line: int) -> str:
        """``FILE:LINE`` for a sentence, or what stands for the file when no line is known."""
        return f"{self.source}:{line}" if line else self.source


DEFAULT: Final = Config()
"""In force when no file is given: every shipped action and policy."""
