"""Every metric of the daemon by its public name, and spans when an exporter is configured.

Counters that are hot are plain integers here, read when a scrape comes; a scheduler that
binds thousands of pods a second has no 5 us to spare for a counter. Label values that users
choose are bounded: the first so many names stand for themselves, the rest are ``other``.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from gpusched.base import limits
from gpusched.io.observe.histograms import OVERFLOW, Histogram, HistogramCollector
from gpusched.io.observe.tracing import Tracing

OTHER: Final = "other"
_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_LATENCY: Final = (0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 3600)

_CHAIN_LENGTH_MAX: Final = 5
"""Chains of so many evictions and longer ones are one label."""

Row = tuple[str, ...]
_Family = CounterMetricFamily | GaugeMetricFamily
_Shown = tuple[Callable[[], _Family], Callable[[], Mapping[Row, float]]]
"""What makes the family of a metric, and what reads its rows."""


class BoundedNames:
    """The first ``most`` names are kept, every later one becomes ``other``."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: set[str] = set()

    def __call__(self, name: str) -> str:
        """``name`` while its table has room, else ``other``."""
        if name in self._known:
            return name
        if len(self._known) >= self._most:
            return OTHER
        self._known.add(name)
        return name


class HistoryState(Protocol):
    """What is shown of the history's file: records written and lost, and whether it can be used."""

    @property
    def written(self) -> int:
        """Records that were written."""

    @property
    def lost(self) -> int:
        """Records that were not."""

    @property
    def is_well(self) -> bool:
        """Whether the file could be used when it was last."""


class Telemetry:
    """Typed methods, one for each thing that is measured; ``render`` gives the text.

    Counters may be fed from any thread; a lost increment in a race is prevented by a lock
    only where two threads really meet (histograms have their own).

    Args:
        tracing: where spans go; nowhere unless given.

    Attributes:
        tracing: opens spans.
    """

    def __init__(self, tracing: Tracing | None = None) -> None:
        self.tracing = tracing if tracing is not None else Tracing()
        self._registry = CollectorRegistry()
        self._shown: list[_Shown] = []
        self._registry.register(_RowCollector(self._shown))
        self._lock = threading.Lock()
        self._history: HistoryState | None = None
        self._queue_name = BoundedNames(limits.QUEUE_NAMES_IN_METRICS_MAX)
        self._resource_name = BoundedNames(limits.RESOURCE_NAMES_IN_METRICS_MAX)
        self._gpu_type_name = BoundedNames(limits.GPU_TYPES_IN_METRICS_MAX)
        self._field_name = BoundedNames(limits.FIELD_NAMES_IN_METRICS_MAX)
        self._stage_name = BoundedNames(limits.PLUGIN_NAMES_IN_METRICS_MAX)
        self._plugin_name = BoundedNames(limits.PLUGIN_NAMES_IN_METRICS_MAX)
        self._make_histograms()
        self._make_counters()
        self._make_gauges()
        self._make_history()

    # -- what happened ----------------------------------------------------------------------

    def cycle(self, action: str, seconds: float) -> None:
        """One action of one session took so long; ``total`` for the whole session."""
        self._cycle.observe(seconds, action)

    def decision(self, seconds: float) -> None:
        """A pod was bound so long after it was first seen."""
        self._decision.observe(seconds)

    def start_compared(self, queue: str, known_by: str, *, error_s: float, wait_s: float) -> None:
        """A gang started so long before or after what it was told when half of its wait was over."""
        with self._lock:
            queue = self._queue_name(queue)
        self._estimate.observe(error_s, queue, known_by)
        self._estimate_part.observe(error_s / wait_s, queue, known_by)

    def start_ranged(self, queue: str, *, held: bool) -> None:
        """A gang that was told a range started within it, or outside of it."""
        with self._lock:
            self._ranges[self._queue_name(queue), "held" if held else "missed"] += 1

    def start_untold(self, queue: str) -> None:
        """A gang waited and started, and was never told when."""
        with self._lock:
            self._untold[(self._queue_name(queue),)] += 1

    def solver(self, result: str, seconds: float, gap: float | None = None) -> None:
        """One solve: its Solution status, its time, and how far it may be from the best."""
        self._solver.observe(seconds, result)
        if gap is not None:
            self._solver_gap[()] = gap

    def solver_lost(self, reason: str) -> None:
        """The solver's process had to be replaced: ``crash``, ``overrun``, ``garbage``, ``start``."""
        with self._lock:
            self._solver_lost[(reason,)] += 1

    def bind(self, result: str) -> None:
        """One Binding was answered: ``bound``, ``conflict``, ``unknown`` and so on."""
        self._binds[(result,)] += 1

    def eviction(self, action: str, reason: str, gpu_seconds: float = 0.0) -> None:
        """One pod was evicted, losing so much work."""
        self._evictions[action, reason] += 1
        self._evicted_gpu_seconds[()] += gpu_seconds

    def evicted_again(self, action: str, queue: str, gpu_seconds: float) -> None:
        """A gang was left without its minimum once more within the window, losing so much work."""
        with self._lock:
            queue = self._queue_name(queue)
        self._repeated_evictions[action, queue] += 1
        self._repeated_gpu_seconds[()] += gpu_seconds

    def eviction_chain(self, length: int, *, is_cycle: bool) -> None:
        """An eviction followed from others: a line of so many, or one that came back to its gang."""
        label = str(length) if length < _CHAIN_LENGTH_MAX else f"{_CHAIN_LENGTH_MAX}+"
        self._eviction_chains[label, "true" if is_cycle else "false"] += 1

    def gang_waited(self, queue: str, seconds: float) -> None:
        """A gang of a queue started after so long."""
        with self._lock:
            queue = self._queue_name(queue)
        self._gang_waits.observe(seconds, queue)

    def gang_ran(self, queue: str, outcome: str, seconds: float) -> None:
        """A run of a gang ended after so long: ``Succeeded``, ``Preempted`` and so on."""
        with self._lock:
            queue = self._queue_name(queue)
        self._gang_runs.observe(seconds, queue, outcome)

    def gang_evicted(self, queue: str, pods: int) -> None:
        """Members of a gang were made to leave."""
        with self._lock:
            self._gang_evictions[(self._queue_name(queue),)] += pods

    def gpus_held(self, queue: str, gpu_type: str, gpu_seconds: float) -> None:
        """A gang held GPUs of a type for a time."""
        with self._lock:
            self._held_gpu_seconds[self._queue_name(queue), self._gpu_type_name(gpu_type)] += (
                gpu_seconds
            )

    def show_history(self, writer: HistoryState) -> None:
        """The file of the history is kept by this writer from now on."""
        self._history = writer

    def rejected(self, resource: str, field: str) -> None:
        """An object was refused because of one field."""
        with self._lock:
            self._rejected[resource, self._field_name(field)] += 1

    def relisted(self, resource: str) -> None:
        """A full list was begun, the first one excepted."""
        self._relists[(resource,)] += 1

    def watch_transition(self, resource: str, reason: str) -> None:
        """A watch ended or a list was done."""
        self._transitions[resource, reason] += 1

    def cache_reset(self, reason: str) -> None:
        """All that was known of the cluster was dropped: leadership lost, or etcd restored."""
        self._cache_resets[(reason,)] += 1

    def events_lost(self, resource: str, change: str) -> None:
        """A watch event was lost, and made up for by an audit."""
        self._events_lost[resource, change] += 1

    def decision_skipped(self) -> None:
        """A decision was not recorded, as too many waited to be written."""
        self._unrecorded[()] += 1

    def throttled(self) -> None:
        """The API server answered 429 because it was busy."""
        self._throttled[()] += 1

    def loop_blocked(self) -> None:
        """The event loop stood still for too long."""
        self._blocked[()] += 1

    def config_reload(self, result: str) -> None:
        """The configuration was read again: ``applied``, ``unchanged`` or ``refused``."""
        self._reloads[(result,)] += 1

    def plugin_session(self, plugin: str, hook: str, seconds: float) -> None:
        """All calls of one hook of one plugin in one session took so long."""
        self._hooks.observe(seconds, hook, self._plugin_name(plugin))

    def plugin_faults(self, plugin: str, hook: str, n: int) -> None:
        """A hook of a plugin raised, or answered with what it may not, so often."""
        self._plugin_faults[self._plugin_name(plugin), hook] += n

    # -- what is ----------------------------------------------------------------------------

    def set_pending(self, queue: str, reason: str, n: int) -> None:
        """So many pod groups wait in a queue for one reason; 0 removes the row."""
        with self._lock:
            _set(self._pending, (queue, reason), n)

    def replace_pending(self, counts: Mapping[tuple[str, str], int]) -> None:
        """All there is: ``(queue, reason)`` to the number of waiting pod groups."""
        with self._lock:
            self._pending.clear()
            self._pending.update({row: float(n) for row, n in counts.items() if n})

    def set_queue(
        self,
        queue: str,
        *,
        allocated: Mapping[str, float],
        fair_share: Mapping[str, float],
        budget: Mapping[str, float] | None = None,
    ) -> None:
        """What a queue holds and what it is due, by resource, in cores, bytes and pieces.

        Its budget in GPU-hours is told by part, ``used`` and ``available``.
        """
        with self._lock:
            self._forget_queue(queue)
            self._allocated.update({(queue, r): float(v) for r, v in allocated.items()})
            self._fair_share.update({(queue, r): float(v) for r, v in fair_share.items()})
            self._budgets.update({(queue, part): v for part, v in (budget or {}).items()})

    def forget_queue(self, queue: str) -> None:
        """A queue was deleted: its rows go."""
        with self._lock:
            self._forget_queue(queue)
            for row in [row for row in self._pending if row[0] == queue]:
                del self._pending[row]

    def replace_fragmentation(self, ratios: Mapping[str, float]) -> None:
        """All levels: share of the free GPUs that typical pods and gangs cannot use, 0 to 1."""
        with self._lock:
            self._fragmentation.clear()
            self._fragmentation.update({(level,): ratio for level, ratio in ratios.items()})

    def replace_gpus(
        self,
        *,
        total: Mapping[str, float],
        idle: Mapping[str, float],
        stranded: Mapping[tuple[str, str], float],
        held: Mapping[tuple[str, str], float],
    ) -> None:
        """All GPUs: by type, by type and reason, and those held without work by queue and reason."""
        with self._lock:
            for rows in (self._gpus, self._idle, self._stranded, self._held):
                rows.clear()
            self._gpus.update({(name,): float(n) for name, n in total.items()})
            self._idle.update({(name,): float(n) for name, n in idle.items()})
            self._stranded.update({row: float(n) for row, n in stranded.items()})
            self._held.update({row: float(n) for row, n in held.items()})

    def set_config(self, digest: str, *, refused: bool) -> None:
        """The content that is in force, and whether the file has asked for another in vain."""
        self._config_hash = digest[:16] or "built-in"
        self._config_good[()] = float(not refused)

    def set_quarantined(self, hooks: Iterable[tuple[str, str]]) -> None:
        """Plugin and hook of all that are set aside for failing too often in a row."""
        rows: dict[Row, float] = {(self._plugin_name(plugin), hook): 1.0 for plugin, hook in hooks}
        self._quarantined.clear()
        self._quarantined.update(rows)

    def set_topologies(self, *, conflicts: int, crossed: int, outside: int) -> None:
        """Topologies that do not count, nodes that these put elsewhere, nodes without a domain."""
        self._topologies[()] = float(conflicts)
        self._off_topology[("crossed",)] = float(crossed)
        self._off_topology[("outside",)] = float(outside)

    def set_reservations(self, by_phase: Mapping[str, int], *, in_the_way: int) -> None:
        """Reservations by phase, and gangs on their nodes that may not use these in the window."""
        with self._lock:
            self._reservations.clear()
            self._reservations.update({(phase,): float(n) for phase, n in by_phase.items()})
            self._in_the_way[()] = float(in_the_way)

    def contained(self, what: str, stage: str) -> None:
        """A fault of the scheduler was contained: of what kind of object, and where."""
        with self._lock:
            self._contained[what, self._stage_name(stage)] += 1

    def replace_set_aside(self, counts: Mapping[str, int]) -> None:
        """All objects that are set aside after faults, by their kind."""
        with self._lock:
            self._set_aside.clear()
            self._set_aside.update({(what,): float(n) for what, n in counts.items()})

    def replace_degraded(self, off: Iterable[str]) -> None:
        """All parts of a session that are off after a fault."""
        with self._lock:
            self._degraded.clear()
            self._degraded.update({(what,): 1.0 for what in off})

    def set_crashes(self, crashes: int) -> None:
        """So many processes in a row died in their sessions before this one began."""
        self._crashes[()] = float(crashes)

    def set_leader(self, *, leading: bool) -> None:
        """Whether this process may write; one that may not any more knows nothing of the cluster."""
        self._lost_lead = not leading
        self._leader[()] = float(leading)
        if not leading:
            with self._lock:
                for rows in self._of_leader:
                    rows.clear()

    def set_shards(self, held: Mapping[str, tuple[int, int]], strays: int) -> None:
        """Nodes and waiting gangs of the shards that this daemon holds, and nodes that are in none or several."""
        with self._lock:
            for rows in (self._shard_nodes, self._shard_waiting, self._stray_nodes):
                rows.clear()
            self._shard_nodes.update({(name,): float(nodes) for name, (nodes, _) in held.items()})
            self._shard_waiting.update({(name,): float(wait) for name, (_, wait) in held.items()})
            self._stray_nodes[()] = float(strays)

    def render(self) -> bytes:
        """The Prometheus text of this moment."""
        return generate_latest(self._registry)

    def shutdown(self) -> None:
        """Send the spans that wait."""
        self.tracing.shutdown()

    # -- instruments ------------------------------------------------------------------------

    def _make_histograms(self) -> None:
        make = partial(Histogram, rows_max=limits.METRIC_ROWS_MAX)
        self._cycle = make(
            "gpusched_cycle_duration_seconds", "Time of one action of a session",
            _SECONDS, ("action",),
        )  # fmt: skip
        self._decision = make(
            "gpusched_decision_latency_seconds", "From a pod seen to the pod bound", _LATENCY
        )
        self._estimate = make(
            "gpusched_start_estimate_error_seconds",
            "Between the start that a gang was told when half of its wait was over and its start",
            (1, 5, 15, 60, 300, 900, 3600, 14400, 86400), ("queue", "known_by"),
        )  # fmt: skip
        self._estimate_part = make(
            "gpusched_start_estimate_error_ratio", "The same as a part of the wait",
            (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5), ("queue", "known_by"),
        )  # fmt: skip
        self._solver = make(
            "gpusched_solver_duration_seconds",
            "Time in the solver of one search by its result, 0 where none was needed",
            _SECONDS, ("result",),
        )  # fmt: skip
        self._hooks = make(
            "gpusched_plugin_hook_seconds",
            "Time of all calls of one hook of one plugin in one session",
            _SECONDS, ("hook", "plugin"),
        )  # fmt: skip
        spans = (1, 10, 60, 300, 1800, 3600, 14400, 43200, 86400, 259200, 604800)
        self._gang_waits = make(
            "gpusched_gang_wait_seconds", "From the time a gang counts as waiting to its start",
            spans, ("queue",),
        )  # fmt: skip
        self._gang_runs = make(
            "gpusched_gang_run_seconds", "From the start of a gang to the end of that run",
            spans, ("queue", "outcome"),
        )  # fmt: skip
        shown = (
            self._cycle, self._decision, self._estimate, self._estimate_part, self._solver,
            self._hooks,
            self._gang_waits, self._gang_runs,
        )  # fmt: skip
        self._registry.register(HistogramCollector(shown))

    def _make_counters(self) -> None:
        self._binds = self._counter("bind", "Bindings by their outcome", ("result",))
        self._evictions = self._counter("evictions", "Pods evicted", ("action", "reason"))
        self._evicted_gpu_seconds = self._counter(
            "evicted_gpu_seconds", "Work lost by evictions, in GPU seconds", ()
        )
        self._repeated_evictions = self._counter(
            "repeated_evictions", "Evictions of gangs that were evicted before within the window",
            ("action", "queue"),
        )  # fmt: skip
        self._repeated_gpu_seconds = self._counter(
            "repeated_eviction_gpu_seconds", "Work lost by repeated evictions, in GPU seconds", ()
        )
        self._eviction_chains = self._counter(
            "eviction_chains", "Evictions of gangs for which others were evicted within the window",
            ("length", "cycle"),
        )  # fmt: skip
        for length in (
            "2",
            "3",
            "4",
            f"{_CHAIN_LENGTH_MAX}+",
        ):  # so that a rate over the first works
            self._eviction_chains.update({(length, "true"): 0.0, (length, "false"): 0.0})
        self._ranges = self._counter(
            "start_estimate_ranges", "Starts that were told a range, by whether they came in it",
            ("queue", "result"),
        )  # fmt: skip
        self._untold = self._counter(
            "start_estimates_missing", "Starts after a minute or more of which nothing was told",
            ("queue",),
        )  # fmt: skip
        self._relists = self._counter("watch_relists", "Kinds listed again", ("resource",))
        self._transitions = self._counter(
            "watch_transitions", "Lists done and watches ended", ("resource", "reason")
        )
        self._cache_resets = self._counter(
            "cache_resets", "Times that all was dropped and read again", ("reason",),
            formerly="started_over",
        )  # fmt: skip
        self._unrecorded = self._counter(
            "decisions_not_recorded", "Decisions that --record-decisions left out", ()
        )
        self._events_lost = self._counter(
            "watch_events_lost", "Events that never came, put right by audits",
            ("resource", "change"),
        )  # fmt: skip
        self._rejected = self._counter(
            "rejected_objects", "Objects refused because of a field", ("resource", "field")
        )
        self._solver_lost = self._counter(
            "solver_restarts", "Processes of the solver that were lost", ("reason",)
        )
        self._throttled = self._counter("api_throttled", "Answers 429 of a busy API server", ())
        self._blocked = self._counter("loop_blocked", "Times the event loop stood still", ())
        self._reloads = self._counter("config_reloads", "Configuration read again", ("result",))
        self._plugin_faults = self._counter(
            "plugin_faults", "Calls of a hook that failed", ("plugin", "hook")
        )

    def _make_gauges_of_kinds(self) -> None:
        self._topologies = self._leader_rows()
        self._off_topology = self._leader_rows()
        self._gauge(
            "topology_conflicts", "Topologies that do not count, as another one does", (),
            lambda: self._topologies,
        )  # fmt: skip
        self._gauge(
            "topology_nodes", "Nodes that topologies disagree on, or that no domain has room for",
            ("state",), lambda: self._off_topology,
        )  # fmt: skip
        self._reservations = self._leader_rows()
        self._in_the_way = self._leader_rows()
        self._gauge("reservations", "Reservations by phase", ("phase",), lambda: self._reservations)
        self._gauge(
            "reservation_gangs_in_the_way",
            "Gangs on nodes of Reservations that may not use them in the current or next window",
            (), lambda: self._in_the_way,
        )  # fmt: skip

    def _make_gauges(self) -> None:
        self._leader: dict[Row, float] = {(): 0.0}
        self._lost_lead = False
        self._of_leader: list[dict[Row, float]] = []
        """Rows of what the sessions of a leader see, shown while it leads, so that a sum over replicas is right."""
        self._make_containment()
        self._pending = self._leader_rows()
        self._allocated = self._leader_rows()
        self._fair_share = self._leader_rows()
        self._solver_gap = self._leader_rows()
        self._fragmentation = self._leader_rows()
        self._make_gpu_gauges()
        self._gauge(
            "pending_pod_groups", "Pod groups that wait", ("queue", "reason"),
            lambda: self._bounded(self._pending),
        )  # fmt: skip
        self._gauge(
            "queue_allocated", "What a queue holds, in base units", ("queue", "resource"),
            lambda: self._bounded(self._allocated, resources=True),
        )  # fmt: skip
        self._gauge(
            "queue_fair_share", "What a queue is due, in base units", ("queue", "resource"),
            lambda: self._bounded(self._fair_share, resources=True),
        )  # fmt: skip
        self._gauge(
            "solver_gap_ratio", "Largest possible distance of the last solution from the best", (),
            lambda: self._solver_gap,
        )  # fmt: skip
        self._gauge(
            "fragmentation_ratio", "Share of free GPUs that typical requests cannot use", ("level",),
            lambda: self._fragmentation,
        )  # fmt: skip
        self._make_gauges_of_kinds()
        self._make_shard_gauges()
        self._config_hash = ""
        self._config_good: dict[Row, float] = {}
        self._quarantined = self._leader_rows()
        self._gauge(
            "config_info", "1 for the content of the configuration in force", ("hash",),
            lambda: {(self._config_hash,): 1.0} if self._config_hash else {}, of_leader=False,
        )  # fmt: skip
        self._gauge(
            "config_last_reload_successful", "0 while the file holds what was refused", (),
            lambda: self._config_good, of_leader=False,
        )  # fmt: skip
        self._gauge(
            "plugin_quarantined", "1 for a hook that is set aside", ("plugin", "hook"),
            lambda: self._quarantined,
        )  # fmt: skip
        self._gauge(
            "leader", "1 while this process may write", (), lambda: self._leader, of_leader=False
        )

    def _leader_rows(self) -> dict[Row, float]:
        rows: dict[Row, float] = {}
        self._of_leader.append(rows)
        return rows

    def _make_shard_gauges(self) -> None:
        self._shard_nodes = self._leader_rows()
        self._shard_waiting = self._leader_rows()
        self._stray_nodes = self._leader_rows()
        self._gauge(
            "shard_nodes",
            "Nodes of a shard that is held here",
            ("shard",),
            lambda: self._shard_nodes,
        )
        self._gauge(
            "shard_waiting_gangs", "Gangs that wait in a shard that is held here", ("shard",),
            lambda: self._shard_waiting,
        )  # fmt: skip
        self._gauge(
            "shard_stray_nodes", "Nodes that belong to no shard or to several", (),
            lambda: self._stray_nodes,
        )  # fmt: skip

    def _make_gpu_gauges(self) -> None:
        self._budgets = self._leader_rows()
        self._gauge(
            "queue_budget_gpu_hours", "Used and available of a queue's budget", ("queue", "part"),
            lambda: self._bounded(self._budgets),
        )  # fmt: skip
        self._gpus = self._leader_rows()
        self._idle = self._leader_rows()
        self._stranded = self._leader_rows()
        self._held = self._leader_rows()
        self._gauge(
            "gpus", "GPUs, and slices that the hardware makes of them, that nodes offer", ("type",),
            lambda: self._bounded_types(self._gpus),
        )  # fmt: skip
        self._gauge(
            "idle_gpus", "GPUs that no pod has", ("type",), lambda: self._bounded_types(self._idle)
        )
        self._gauge(
            "stranded_gpus", "Idle GPUs that no pod which runs or waits could use", ("type", "reason"),
            lambda: self._bounded_types(self._stranded),
        )  # fmt: skip
        self._gauge(
            "held_gpus", "GPUs held for gangs that cannot run yet", ("queue", "reason"),
            lambda: self._bounded(self._held),
        )  # fmt: skip

    def _make_containment(self) -> None:
        self._contained = self._counter(
            "contained_faults", "Faults of the scheduler that were contained", ("what", "stage")
        )
        self._set_aside = self._leader_rows()
        self._degraded = self._leader_rows()
        self._crashes: dict[Row, float] = {}
        self._gauge(
            "session_crashes", "Processes that died in sessions in a row before this one began", (),
            lambda: self._crashes, formerly="session_deaths", of_leader=False,
        )  # fmt: skip
        self._gauge(
            "set_aside_objects", "Objects that are left out of sessions after faults", ("what",),
            lambda: self._set_aside,
        )  # fmt: skip
        self._gauge(
            "degraded", "1 for a part of sessions that is off after a fault", ("what",),
            lambda: self._degraded,
        )  # fmt: skip

    def _make_history(self) -> None:
        self._gang_evictions = self._counter(
            "gang_evictions", "Pods of gangs that were made to leave", ("queue",)
        )
        self._held_gpu_seconds = self._counter(
            "gang_gpu_seconds", "GPU seconds that gangs held", ("queue", "gpu_type")
        )

        def counted(name: str) -> Callable[[], Mapping[Row, float]]:
            return lambda: {} if self._history is None else {(): getattr(self._history, name)}

        for name, what in (("written", "Records written to the history"),
                           ("lost", "Records that the history lost")):  # fmt: skip
            self._show(CounterMetricFamily, f"history_{name}_records", what, (), counted(name))
        self._gauge(
            "history_writable", "0 while the file of the history cannot be written", (),
            lambda: {} if self._history is None else {(): float(self._history.is_well)}, of_leader=False,
        )  # fmt: skip

    def _counter(
        self, name: str, description: str, labels: Row, *, formerly: str = ""
    ) -> defaultdict[Row, float]:
        """Rows of a counter, which stands under the name that it had before as well."""
        rows: defaultdict[Row, float] = defaultdict(float)
        if not labels:
            rows[()] = 0.0  # shown from the start, so that a rate over it works

        show = partial(self._show, CounterMetricFamily)
        show(name, description, labels, lambda: rows)
        if formerly:
            show(formerly, _deprecated(f"{name}_total"), labels, lambda: rows)
        return rows

    def _gauge(
        self,
        name: str,
        description: str,
        labels: Row,
        rows: Callable[[], Mapping[Row, float]],
        *,
        formerly: str = "",
        of_leader: bool = True,
    ) -> None:
        """A gauge; ``of_leader`` is not shown when this process leads no more."""

        def read() -> Mapping[Row, float]:
            # A session that was under way may end when the lead is lost.
            return {} if of_leader and self._lost_lead else rows()

        show = partial(self._show, GaugeMetricFamily)
        show(name, description, labels, read)
        if formerly:
            show(formerly, _deprecated(name), labels, read)

    def _show(
        self, family: type[_Family], name: str, description: str, labels: Row,
        rows: Callable[[], Mapping[Row, float]],
    ) -> None:  # fmt: skip
        self._shown.append((partial(family, f"gpusched_{name}", description, labels=labels), rows))

    def _bounded(self, rows: Mapping[Row, float], *, resources: bool = False) -> dict[Row, float]:
        """Rows with bounded names; those that become ``other`` are added up."""
        out: defaultdict[Row, float] = defaultdict(float)
        with self._lock:
            for (queue, second), value in rows.items():
                label = self._resource_name(second) if resources else second
                out[self._queue_name(queue), label] += value
        return out

    def _bounded_types(self, rows: Mapping[Row, float]) -> dict[Row, float]:
        """Rows whose first label is a type of GPUs, with bounded names."""
        out: defaultdict[Row, float] = defaultdict(float)
        with self._lock:
            for (name, *rest), value in rows.items():
                out[(self._gpu_type_name(name), *rest)] += value
        return out

    def _forget_queue(self, queue: str) -> None:
        for rows in (self._allocated, self._fair_share, self._budgets):
            for row in [row for row in rows if row[0] == queue]:
                del rows[row]


def _deprecated(name: str) -> str:
    return f"Deprecated: gpusched_{name} is its name now"


def _set(rows: dict[Row, float], row: Row, value: float) -> None:
    if value:
        rows[row] = value
    else:
        rows.pop(row, None)


class _RowCollector(Collector):
    """Shows counters and gauges in a registry; one without rows is left out.

    Args:
        shown: in the order in which they are shown.
    """

    def __init__(self, shown: Sequence[_Shown]) -> None:
        self._shown = shown

    def collect(self) -> Iterator[_Family]:
        """Yield a family for each, with bounded rows: those beyond are added up."""
        for make, read in self._shown:
            rows = sorted(dict(read()).items())  # a copy first: another thread may count meanwhile
            if not rows:
                continue
            family = make()
            for row, value in rows[: limits.METRIC_ROWS_MAX]:
                family.add_metric(row, value)
            if beyond := rows[limits.METRIC_ROWS_MAX :]:
                others = (OVERFLOW,) * len(beyond[0][0])
                family.add_metric(others, sum(value for _, value in beyond))
            yield family

    def describe(self) -> Iterator[_Family]:
        """Yield nothing: the names are known before the rows are."""
        return iter(())
