"""What a configuration says once it is believed: frozen, complete, with every default filled in.

Two configurations are equal when they ask for the same; where they were written (``source`` and
lines, kept for sentences about what is found wrong later) does not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

import attrs

from gpusched.api.affinity.selector import Selector
from gpusched.api.devices.gpu_layout import GpuLayoutCatalog
from gpusched.api.meta.gpu_resources import DEFAULT_GPU_RESOURCES, GpuResources
from gpusched.base import limits
from gpusched.base.classes import frozen

Argument: TypeAlias = (
    "str | int | float | bool | tuple[Argument, ...] | Mapping[str, Argument] | None"
)
"""A value as the file has it; the plugin's own argument class gives it a type."""

Solver: TypeAlias = Literal["cpsat", "greedy", "heuristic"]
GroupPriority: TypeAlias = Literal["trusted", "ofPods"]
GROUP_PRIORITIES: Final[tuple[GroupPriority, ...]] = ("trusted", "ofPods")
ForeignNamesShown: TypeAlias = Literal["hidden", "shown"]
FOREIGN_NAMES_SHOWN: Final[tuple[ForeignNamesShown, ...]] = ("hidden", "shown")
Incremental: TypeAlias = Literal["always", "never", "compared"]
INCREMENTAL: Final[tuple[Incremental, ...]] = ("always", "never", "compared")
UsersBelieved: TypeAlias = Literal["annotated", "ignored"]
USERS_BELIEVED: Final[tuple[UsersBelieved, ...]] = ("annotated", "ignored")
SOLVERS: Final[tuple[Solver, ...]] = ("cpsat", "greedy", "heuristic")


@frozen
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


@frozen
class PluginTier:
    """Plugins whose keys and reasons count together."""

    plugins: tuple[PluginChoice, ...]


@frozen(kw_only=True)
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


@frozen(kw_only=True)
class CycleConfig:
    """When sessions run: ``debounce_s`` after a change, and every ``max_period_s`` anyway.

    Attributes:
        incremental: whether sessions use what is left of earlier ones; ``compared`` holds each once more without.
        play_starts_s: how often starts of gangs that wait are played, beside the sessions; 0 for never.
    """

    debounce_s: float = 0.02
    max_period_s: float = 10.0
    incremental: Incremental = "always"
    play_starts_s: float = limits.PLAY_STARTS_S


@frozen(kw_only=True)
class ClientConnectionConfig:
    """How much of the API server a daemon takes.

    Attributes:
        qps: requests a second; halved while the server answers 429.
        max_connections: open at a time, lists and watches among them; the Lease has its own.
    """

    qps: int = round(limits.API_RATE_MAX)
    max_connections: int = limits.CONNECTIONS_MAX


@frozen(kw_only=True)
class LimitsConfig:
    """Bounds that an operator tunes; the other ones, with their reasons, are in ``base.limits``.

    Attributes:
        binds_in_flight: bindings sent and not answered.
        evictions_in_flight: evictions sent and not answered.
        status_writes_in_flight: status patches sent and not answered.
        events_in_flight: events sent and not answered.
        preemptions_in_flight: gangs for which room is being made at a time.
        preemption_timeout_s: after which victims that a disruption budget protects are left alone.
        admitted_timeout_s: after which a Job that was started and got no place is suspended again.
        pod_arrival_timeout_s: for which room is held for pods that a controller has yet to make.
        repair_timeout_s: for which room is held for members that a gang has lost.
        reservations: of one session, over all node pools.
        reservation_window_s: beyond which no start is promised.
        cache_staleness_s: for which decisions go on after a stream broke.
        audit_period_s: between two comparisons of the cache with lists of everything.
        binds_per_session: bindings that one session decides at most.
        evictions_per_session: evictions that one action of one session decides at most.
        session_work: units of work, about a microsecond each, of one action of one session; gangs
            beyond it are looked at by the next session.
        victim_work: victims and trials that one action looks at in one session.
        start_estimates: gangs of one session that are told when they will start.
        nomination_timeout_s: for which room is held for a gang while its victims end.
        move_pause_s: for which a gang that was moved is not moved again.
        eviction_window_s: within which evictions of a gang are repeated ones, and chains count; 0 for
            no such count.
        volume_timeout_s: for which a gang keeps its places while its volumes are made.
        decision_line_rate: log lines about decisions in a second; 0 writes none.
    """

    binds_in_flight: int = limits.BINDS_IN_FLIGHT_MAX
    evictions_in_flight: int = limits.EVICTIONS_IN_FLIGHT_MAX
    status_writes_in_flight: int = limits.STATUS_IN_FLIGHT_MAX
    events_in_flight: int = limits.EVENTS_IN_FLIGHT_MAX
    preemptions_in_flight: int = limits.PREEMPTIONS_IN_FLIGHT_MAX
    preemption_timeout_s: float = limits.PREEMPTION_MAX_S
    admitted_timeout_s: float = limits.ADMITTED_MAX_S
    pod_arrival_timeout_s: float = limits.EXPECTED_PODS_MAX_S
    repair_timeout_s: float = limits.REPAIR_ROOM_MAX_S
    reservations: int = limits.RESERVATIONS_MAX
    reservation_window_s: float = limits.RESERVATION_WINDOW_S
    cache_staleness_s: float = limits.CACHE_STALENESS_MAX_S
    audit_period_s: float = limits.COMPARE_PERIOD_S
    binds_per_session: int = limits.PLAN_BINDS_MAX
    evictions_per_session: int = limits.PLAN_EVICTIONS_MAX
    session_work: int = limits.SESSION_WORK_MAX
    victim_work: int = limits.VICTIM_WORK_MAX
    start_estimates: int = limits.ESTIMATES_MAX
    nomination_timeout_s: float = limits.NOMINATION_MAX_S
    move_pause_s: float = limits.MOVED_AGAIN_S
    eviction_window_s: float = limits.EVICTION_WINDOW_S
    volume_timeout_s: float = limits.VOLUMES_WAIT_S
    decision_line_rate: int = limits.DECISION_LINE_RATE


DEFAULT_LIMITS: Final = LimitsConfig()
DEFAULT_CLIENT_CONNECTION: Final = ClientConnectionConfig()


def default_limits() -> LimitsConfig:
    """The limits where no configuration is at hand."""
    return LimitsConfig()


@frozen(kw_only=True)
class HistoryConfig:
    """Where the runs of gangs are kept.

    Attributes:
        file: the path; empty keeps none, unless ``gpusched run --history`` names one.
        keep_s: runs that ended longer ago are forgotten.
        max_rows: runs that are kept at most.
    """

    file: str = ""
    keep_s: float = limits.HISTORY_KEPT_S
    max_rows: int = limits.HISTORY_ROWS_MAX


@frozen(kw_only=True)
class LeaderElectionConfig:
    """The Lease that makes one daemon the active one, and its timing in seconds."""

    lease_name: str = "gpusched"
    lease_namespace: str = "gpusched-system"
    lease_duration_s: float = 15.0
    renew_deadline_s: float = 10.0
    retry_period_s: float = 2.0


@frozen
class ShardConfig:
    """Nodes that daemons which hold this shard's Lease decide about.

    Attributes:
        selector: of the labels of its nodes.
        lends_nodes: whether its idle nodes are lent to shards that have not room enough for a gang.
    """

    name: str
    selector: Selector
    lends_nodes: bool = False


@frozen(kw_only=True)
class Config:
    """Everything that ``conf/gpusched.yaml`` can say.

    Attributes:
        scheduler_names: pods with one of these ``schedulerName`` are ours.
        names_of_other_namespaces: whether what users of one namespace read, in conditions, events
            and the view, names gangs and pods of others.
        pod_group_priority: whether the priority class of a PodGroup counts as it is where no
            ResourceQuota limits it, or no further than the priority that its pods were admitted
            with.
        non_preemptible_from_priority: gangs of priority classes of this value and above are not
            preemptible, where neither they nor the class say so; None for no such border.
        users: whether annotations that name who made an object count, or all are of one user without a name.
        gpu_resources: extended resources that are GPUs, the one that shares are of first.
        shards: parts of the cluster, each with a Lease of its own; none where one daemon decides.
        actions: run in this order in each session.
        tiers: policies, the most important first.
        source: the file's name as the user gave it.
        action_lines: one line number an action; empty when no file names them.
        digest: SHA-256 of what the files hold in hexadecimal; empty when there is no file.
        layouts: the catalogue of GPU layouts beside the file; None for the one that comes with
            the program. What changes in it is looked at apart, see ``config.reload``.
    """

    scheduler_names: tuple[str, ...] = ("gpusched",)
    names_of_other_namespaces: ForeignNamesShown = "shown"
    pod_group_priority: GroupPriority = "trusted"
    non_preemptible_from_priority: int | None = None
    users: UsersBelieved = "annotated"
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
    limits: LimitsConfig = DEFAULT_LIMITS
    client_connection: ClientConnectionConfig = DEFAULT_CLIENT_CONNECTION
    history: HistoryConfig = HistoryConfig()
    leader_election: LeaderElectionConfig = LeaderElectionConfig()
    shards: tuple[ShardConfig, ...] = ()
    source: str = attrs.field(default="built-in configuration", eq=False)
    action_lines: tuple[int, ...] = attrs.field(default=(), eq=False, repr=False)
    digest: str = attrs.field(default="", eq=False, repr=False)
    layouts: GpuLayoutCatalog | None = attrs.field(default=None, eq=False, repr=False)

    def at(self, line: int) -> str:
        """``FILE:LINE`` for a sentence, or what stands for the file when no line is known."""
        return f"{self.source}:{line}" if line else self.source


DEFAULT: Final = Config()
"""In force when no file is given: every shipped action and policy."""
