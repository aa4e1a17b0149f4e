"""When does what was submitted start, as the line moves on? The cluster is played forward until it has.

Pods end as they announce (``expectedDuration``), else at their deadline; those that announce nothing hold
their places. Sessions are the
daemon's, and suspended Jobs, evictions and pods of Jobs are carried out as the simulation does.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Final

import attrs

from gpusched.advice.start_answer import pending_reason
from gpusched.advice.submission.workload_pods import ExpandedWorkload, controller_uid
from gpusched.advice.trial import TrialCluster
from gpusched.api.meta.duration import format_duration
from gpusched.api.meta.identity import UID, GangKey, ObjectKey
from gpusched.base.classes import define, frozen
from gpusched.cache.gangs.gang import Gang
from gpusched.engine.from_snapshot import SimulationStart, start_from_snapshot
from gpusched.engine.objects import Obj, key_of
from gpusched.engine.simulation import Arrival, Simulation, SimulationCase
from gpusched.engine.world import RUN_FOR
from gpusched.io.recordings.snapshot_file import SnapshotFile
from gpusched.io.watch.informers import KINDS
from gpusched.session.decide import Decision
from gpusched.session.state.plan import GangBind, PodBind
from gpusched.shards.handover import fits_nowhere
from gpusched.shards.layout import ShardLayout

SESSIONS_MAX: Final = 300
"""Sessions that are played for one submission."""
SHARD_SESSIONS_MAX: Final = 3_000
"""The same where daemons of shards are played, which look again every minute; of those that do something it is as before."""
TOGETHER_S: Final = 2.0
"""What starts so soon after the first of it, when its Job has its pods, starts together with it."""
_UNTIL_S: Final = 60 * 86_400.0
_JOBS: Final = "batch/v1"


@define
class PlayedStart:
    """What became of one gang, or of the pods of one workload that start by themselves.

    Attributes:
        wanted: pods that it takes to call it started.
        binds: of its pods, each with the seconds from now until it came.
        at: seconds from now until it had so many; None while it has not.
        evicted: gangs that lost members for it.
        waits: reason and message, as they were told last while it waited; empty until then.
    """

    wanted: int
    binds: list[tuple[float, PodBind]] = attrs.field(factory=list)
    at: float | None = None
    evicted: set[GangKey] = attrs.field(factory=set)
    waits: tuple[str, str] = ("", "")

    def take(self, now: float, bind: GangBind) -> None:
        """Places that it got."""
        self.binds += [(now, each) for each in bind.binds]
        if self.at is None and len(self.binds) >= self.wanted:
            self.at = now

    def first_binds(self) -> list[PodBind]:
        """Places that it has when it starts."""
        latest = TOGETHER_S + (self.at or 0.0)
        return [bind for at, bind in self.binds if at < latest]


@frozen
class PlayedLine:
    """What became of a submission.

    Attributes:
        gangs: by key, those that start as a whole.
        workloads: by number, those whose pods start by themselves.
        sessions: that were played.
        homeless: gangs that no shard could hold even if it were empty, where none lends nodes.
        cut: whether they were as many as are played at most.
        until: the moment up to which was played, seconds since the Unix epoch.
        late: pods that should have ended before, and were taken to end within a minute.
        learned: running pods that announce nothing, and were taken to run as long as others did.
    """

    gangs: dict[GangKey, PlayedStart]
    workloads: dict[int, PlayedStart]
    homeless: frozenset[GangKey]
    sessions: int
    cut: bool
    until: float
    late: int
    learned: int


def play_forward(
    trial: TrialCluster,
    workloads: Sequence[ExpandedWorkload],
    *,
    whole: Sequence[Gang],
    lone: dict[int, int],
) -> PlayedLine:
    """Play the cluster with a submission until all of it has started, or nothing more is to come.

    Args:
        trial: the cluster with the workloads in it.
        workloads: that were submitted.
        whole: gangs of theirs that start as a whole.
        lone: by number of a workload, pods of it that start by themselves.
    """
    watch = _StartWatch(workloads, whole, lone)
    mine = {obj["metadata"]["uid"] for each in workloads for obj in each.objects}
    before, after, start = objects_that_end(trial, mine)
    case = SimulationCase(
        name="when",
        config=trial.config,
        objects=before,
        arrivals=[Arrival(0.0, after)],
        until=_UNTIL_S,
        epoch=trial.now,
        placed=watch.take,
        decided=watch.note_decision,
        enough=watch.is_complete,
        plays_shards=True,
        board=trial.board,
    )
    simulation = Simulation(case)
    watch.simulation = simulation
    simulation.run()
    return PlayedLine(
        watch.gangs,
        watch.workloads,
        _homeless_gangs(simulation, whole),
        simulation.sessions,
        is_cut(simulation),
        simulation.world.wall,
        start.late,
        start.guessed,
    )


def _homeless_gangs(simulation: Simulation, gangs: Sequence[Gang]) -> frozenset[GangKey]:
    board = simulation.board
    layout = ShardLayout.from_config(simulation.case.config)
    if board is None or layout.lends_any:
        return frozenset()
    return frozenset(each.key for each in gangs if fits_nowhere(each, layout, board))


def is_cut(simulation: Simulation) -> bool:
    """Whether as many sessions were played as are for one answer."""
    if not simulation.case.config.shards:
        return simulation.sessions >= SESSIONS_MAX
    return simulation.sessions_that_act >= SESSIONS_MAX or simulation.sessions >= SHARD_SESSIONS_MAX


class _StartWatch:
    """Notes the places that a submission gets."""

    simulation: Simulation

    def __init__(
        self, workloads: Sequence[ExpandedWorkload], whole: Sequence[Gang], lone: dict[int, int]
    ) -> None:
        self.gangs = {each.key: PlayedStart(max(1, each.min_member)) for each in whole}
        self.workloads = {number: PlayedStart(count) for number, count in lone.items()}
        self._by_uid = {each.uid: self.gangs[each.key] for each in whole}
        self._by_pod = {key: number for number in lone for key in workloads[number].pods}
        self._by_owner = {
            obj["metadata"]["uid"]: number for number in lone for obj in workloads[number].objects
        }

    def take(self, now: float, bind: GangBind) -> None:
        """A gang got places."""
        start = self.gangs.get(bind.gang)
        if start is None:
            pod = self.simulation.cache.find_pod(bind.binds[0].uid)
            owner = pod.owner.uid if pod is not None and pod.owner is not None else UID("")
            start = self._by_uid.get(
                owner
            )  # a Job whose pods start by themselves once it is started
        if start is None:
            number = self._by_pod.get(bind.binds[0].key, self._by_owner.get(owner, -1))
            start = self.workloads.get(number)
        if start is not None:
            start.take(now, bind)

    def note_decision(self, decision: Decision) -> None:
        """Who is evicted for what was submitted, and why it waits, until it has started."""
        for made in decision.plan.preemptions:
            start = self._unstarted(made.gang)
            if start is not None:
                start.evicted |= {stop.gang for stop in made.stops}
        for status in decision.plan.gangs:
            start = self._unstarted(status.gang)
            if start is not None:
                start.waits = pending_reason(status)

    def _unstarted(self, gang: GangKey) -> PlayedStart | None:
        start = self.gangs.get(gang)
        if start is None:
            pod = ObjectKey(gang.namespace, gang.name)
            start = self.workloads.get(self._by_pod.get(pod, -1))
        return start if start is not None and start.at is None else None

    def is_complete(self, _sessions: int) -> bool:
        """Whether all have started, or it was looked far enough ahead."""
        starts = (*self.gangs.values(), *self.workloads.values())
        return is_cut(self.simulation) or all(each.at is not None for each in starts)


def objects_that_end(
    trial: TrialCluster, mine: Container[str] = ()
) -> tuple[tuple[Obj, ...], tuple[Obj, ...], SimulationStart]:
    """Objects of the cluster and those that were submitted, in an order in which they can be applied.

    Args:
        trial: the cluster, whose pods say afterwards how long they run, as far as that is known.
        mine: UID of each object that was submitted; of the others it is not known what tells fake nodes how
            long to run pods, as no real cluster has that.
    """
    ordered = [
        *trial.objects.others(),
        *(obj for plural in KINDS if plural != "pods" for obj in trial.objects.all(plural)),
        *trial.objects.all("pods"),
    ]
    ordered = [
        obj if obj["metadata"].get("uid") in mine else _without_fake_time(obj) for obj in ordered
    ]
    file = SnapshotFile(
        path="", taken_at=trial.now, server="", recorder="", objects={"all": tuple(ordered)}
    )
    before, after = [], []
    lengths = _GangLengths(trial)
    start = start_from_snapshot(file, announce=lengths.announced, guess=lengths.learned)
    for obj in start.objects:
        if obj["metadata"].get("uid") not in mine:
            before.append(obj)
        elif not (obj["kind"] == "Pod" and controller_uid(obj, _JOBS)):
            after.append(obj)  # pods of Jobs are made when the Job comes
    return tuple(before), tuple(after), start


def _without_fake_time(obj: Obj) -> Obj:
    """The object without the time for which fake nodes run it, or the pods that it makes."""
    if obj.get("kind") == "Job":
        template = obj["spec"]["template"]
        return {
            **obj,
            "spec": {**obj["spec"], "template": _without_fake_time(template)},
        }
    metadata = obj.get("metadata") or {}
    notes = metadata.get("annotations") or {}
    if RUN_FOR not in notes:
        return obj
    kept = {name: value for name, value in notes.items() if name != RUN_FOR}
    return {**obj, "metadata": {**metadata, "annotations": kept}}


class _GangLengths:
    """How long gangs of a cluster run, of whatever kind they are, as durations; empty for what is not known."""

    def __init__(self, trial: TrialCluster) -> None:
        snapshot = trial.take_snapshot()
        self._learned = trial.learned_lengths()
        self._gangs: dict[ObjectKey, Gang] = {}
        for gang in (*snapshot.placed_gangs.values(), *snapshot.gangs):
            pods = [each.pod for each in gang.placed]
            pods += [pod for pod_set in gang.pod_sets for pod in pod_set.pods]
            self._gangs |= {pod.key: gang for pod in pods}

    def announced(self, pod: Obj) -> str:
        """What the gang of a pod announces."""
        gang = self._gangs.get(key_of(pod))
        length_ns = gang.terms.expected_duration_ns if gang is not None else 0
        return format_duration(length_ns) if length_ns else ""

    def learned(self, obj: Obj) -> str:
        """What is known of a pod's gang, or of a Job, from runs of others."""
        key = GangKey(obj["kind"], *key_of(obj))
        gang = self._gangs.get(key_of(obj)) if obj["kind"] == "Pod" else None
        seconds = self._learned.get(gang.key if gang is not None else key)
        return f"{seconds}s" if seconds else ""
