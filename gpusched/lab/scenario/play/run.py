"""Plays a scenario on a ground: its timeline, its daemons, its judge, its invariants.

``play`` knows neither the embedded cluster nor a real one: a ``Site`` has what it needs of
either. Times are seconds since the daemons' start.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs

from gpusched.app import AppOptions
from gpusched.base.classes import frozen
from gpusched.base.clock import Clock
from gpusched.base.errors import ClusterUnreachable, ConfigError
from gpusched.devcluster.cluster import DevCluster
from gpusched.engine.run_record import ActDone, RunRecord
from gpusched.lab.scenario.expansion.moments import TimelineMoment, unroll_timeline
from gpusched.lab.scenario.expansion.workload_manifests import manifest_duration
from gpusched.lab.scenario.judge.judge import ExpectationVerdict, Judge
from gpusched.lab.scenario.model.scenario import Scenario
from gpusched.lab.scenario.play.acts import ActRunner
from gpusched.lab.scenario.play.daemons import Daemons
from gpusched.lab.scenario.play.invariants import InvariantWatch
from gpusched.lab.scenario.recorder.recorder import RunRecorder
from gpusched.lab.scenario.recorder.told_starts import start_records
from gpusched.lab.scenario.target_cluster.interface import (
    ObjectChange,
    TargetCluster,
    WriteRefused,
)

_LEAST_S: Final = 1e-6
"""A shorter sleep may not move the time of a loop that is far from its beginning."""
LOOK_S: Final = 1.0
"""So often it is asked whether the run is over, and whether a daemon broke."""
QUIET_S: Final = 600.0
"""A workload that waits so long without any change will wait for ever."""
_READY_S: Final = 60.0
"""Nodes that are there before have so long to become ready."""
_RANKS: Final = {"Namespace": 0, "CustomResourceDefinition": 1, "PriorityClass": 2, "Topology": 3,
                 "Queue": 4, "Node": 5, "NodePool": 5}  # fmt: skip
_LAST: Final = 6


@frozen(kw_only=True)
class PlaySite:
    """Where a scenario is played.

    Attributes:
        ground: its cluster.
        name: as records call it: ``embedded``, ``cluster``.
        daemon: options of the so-many-th daemon.
        cluster: the embedded one; None for a real one, which has no faults and restarts.
        led: whether another daemon leads there, so that none is started.
        made: given the daemons of the run before it begins, so that they can be killed from outside.
    """

    ground: TargetCluster
    name: str
    daemon: Callable[[int], AppOptions]
    cluster: DevCluster | None = None
    led: bool = False
    made: Callable[[Daemons], None] = lambda _daemons: None


@frozen(kw_only=True)
class RunProgress:
    """Where a run stands.

    Attributes:
        seconds: since its start.
        horizon: it lasts at least so long.
    """

    name: str
    seconds: float
    horizon: float


@frozen(kw_only=True)
class ScenarioRun:
    """What came of a scenario.

    Attributes:
        record: what happened, also of a run that was ended early; None when it was not played.
        skipped: why it was not played.
        refused: what the server does not take of what is to be there from the beginning.
        fault: how a daemon broke.
        lost: whether the cluster was lost.
        interrupted: whether the user ended it.
        real_s: seconds that playing it took.
    """

    scenario: Scenario
    record: RunRecord | None = None
    verdicts: tuple[ExpectationVerdict, ...] = ()
    skipped: str = ""
    refused: str = ""
    fault: str = ""
    lost: bool = False
    interrupted: bool = False
    real_s: float = 0.0

    @property
    def troubles(self) -> tuple[ActDone, ...]:
        """Acts that could not be done."""
        return tuple(each for each in self.record.acts if each.trouble) if self.record else ()

    @property
    def ok(self) -> bool:
        """Whether everything was as expected; so is one that was not played."""
        if self.record is None:
            return bool(self.skipped)
        return (
            all(each.ok for each in self.verdicts)
            and not self.record.broken
            and not self.record.unfinished
            and not self.troubles
            and not self.fault
        )


async def play_scenario(
    scenario: Scenario, site: PlaySite, *, tell: Callable[[RunProgress], None] | None = None
) -> ScenarioRun:
    """Play a scenario to its end.

    A run that is cut at its limit, loses its cluster, loses a daemon or is cancelled keeps what
    happened until then; its expectations are judged as things are then.

    Raises:
        ConfigError: an object that is to be there from the beginning is refused.
    """
    return await _ScenarioPlay(scenario, site, tell).run()


class _EndOfRun(Exception):
    """The run ends before its time; the sentence says why."""


class _ScenarioPlay:
    """One scenario while it is played."""

    def __init__(
        self, scenario: Scenario, site: PlaySite, tell: Callable[[RunProgress], None] | None
    ) -> None:
        self._scenario = scenario
        self._site = site
        self._tell = tell
        self._ground = site.ground
        self._clock: Clock = site.ground.clock
        self._begin = self._clock.monotonic()
        self._epoch = self._clock.now()
        names = scenario.config.scheduler_names
        self._recorder = RunRecorder(names)
        self._watch = InvariantWatch(self._recorder, names)
        self._slack_s = 0.0 if site.ground.embedded else scenario.slack_s
        self._judge = Judge(scenario.expect, slack_s=self._slack_s)
        self._daemons = Daemons(site.daemon)
        site.made(self._daemons)
        self._actor = ActRunner(
            site.ground, self._daemons, cluster=site.cluster, tell=self._troubled
        )
        self._moments = unroll_timeline(scenario)
        self._horizon = _horizon(scenario, self._moments)
        self._next = 0
        self._acts: list[ActDone] = []
        self._over_since: float | None = None
        self._ended_at: float | None = None
        self._busy_until = 0.0
        self._changes = 0
        self._bug: Exception | None = None

    @property
    def now(self) -> float:
        """Seconds since the daemons' start."""
        return round(self._clock.monotonic() - self._begin, 6)

    async def run(self) -> ScenarioRun:
        """From what is there before to the verdicts."""
        unfinished, fault, lost, interrupted = "", "", False, False
        try:
            await self._prepare()
            await self._live()
        except _EndOfRun as why:
            unfinished = str(why)
            fault = self._daemons.fault()
        except ClusterUnreachable as error:
            unfinished, lost = f"the cluster was lost: {error}", True
        except asyncio.CancelledError:
            unfinished, interrupted = "it was interrupted", True
        finally:
            await self._actor.close()
            if self._site.cluster is None and not lost:
                await self._daemons.leave(self._clock)  # an embedded cluster goes with its Lease
            await self._daemons.close()
        self._watch.look(self.now)
        self._judge.finish(self.now, self._record)
        return ScenarioRun(
            scenario=self._scenario,
            record=attrs.evolve(self._record(), unfinished=unfinished),
            verdicts=self._judge.verdicts(),
            fault=fault,
            lost=lost,
            interrupted=interrupted,
        )

    # -- before ------------------------------------------------------------------------------
    async def _prepare(self) -> None:
        """Everything that is there from the beginning is there, and lives; the daemons start."""
        before = sorted(
            self._scenario.before, key=lambda each: _RANKS.get(each.obj.get("kind", ""), _LAST)
        )
        for manifest in before:
            try:
                await self._actor.apply(manifest.obj)
            except WriteRefused as refused:
                raise ConfigError(f"{manifest.place}: {refused}") from None
        end = self.now + _READY_S
        await self._clock.sleep(LOOK_S)
        while self.now < end and not self._lives():
            await self._clock.sleep(LOOK_S)
        self._begin = self._clock.monotonic()
        self._epoch = self._clock.now()
        self._ground.begin()
        self._ground.on_change(self._see)
        for _ in range(0 if self._site.led else self._scenario.daemons):
            self._daemons.start()

    def _lives(self) -> bool:
        """Whether nodes are ready, and pods run that have one."""
        nodes = self._ground.list("Node")
        if any(not (node.get("status") or {}).get("conditions") for node in nodes):
            return False
        return all(
            (pod.get("status") or {}).get("phase") != "Pending"
            for pod in self._ground.list("Pod")
            if pod["spec"].get("nodeName")
        )

    def _see(self, change: ObjectChange) -> None:
        self._changes += 1
        try:
            self._recorder.see(change)
            self._watch.see(change)
            self._judge.observe_change(change)
            self._actor.observe_change(change)
        except Exception as bug:  # noqa: BLE001 - a fault of ours is no answer to who wrote it
            self._bug = self._bug or bug

    # -- the run -----------------------------------------------------------------------------
    async def _live(self) -> None:
        """Act, look and judge until it is over."""
        while True:
            await self._act()
            now = self.now
            self._actor.check()
            self._ground.check()
            if self._bug is not None:
                raise self._bug
            if self._judge.wants(now) <= now:
                self._judge.look(now, self._record)
            self._watch.look(now)
            self._report()
            if fault := self._daemons.fault():
                raise _EndOfRun(f"a daemon broke: {fault}")
            if self._is_over(now):
                return
            if now >= self._scenario.limit_s:
                raise _EndOfRun(self._endless(now))
            await self._clock.sleep(max(_LEAST_S, self._wake(now) - now))

    def _wake(self, now: float) -> float:
        """When to look next: at a whole second, but for what is due before."""
        wake = (math.floor(now / LOOK_S + 1e-6) + 1) * LOOK_S
        wake = min(wake, self._judge.wants(now), self._scenario.limit_s)
        if self._next < len(self._moments):
            wake = min(wake, self._moments[self._next].at_s)
        return wake

    async def _act(self) -> None:
        while self._next < len(self._moments):
            moment = self._moments[self._next]
            if moment.at_s > self.now + 1e-9:
                return
            self._next += 1
            await self._do(moment)

    async def _do(self, moment: TimelineMoment) -> None:
        at = self.now
        trouble = await self._actor.do(moment.act)
        sentence = moment.sentence
        if trouble and moment.unchecked:
            sentence, trouble = f"{sentence} (it may fail, and did: {trouble})", ""
        self._acts.append(ActDone(at=at, sentence=sentence, trouble=trouble))

    def _troubled(self, trouble: str) -> None:
        self._acts.append(ActDone(at=self.now, sentence="what was begun went on", trouble=trouble))

    # -- its end -----------------------------------------------------------------------------
    def _is_over(self, now: float) -> bool:
        ends = self._scenario.ends_s
        if ends is not None:
            return now >= ends + self._slack_s
        acts = self._next < len(self._moments) or self._actor.busy
        if acts or self._judge.wants(now) < math.inf:
            self._busy_until, self._over_since = now, None
            return False
        if self._is_working(now):
            self._over_since = None
            return False
        if self._over_since is None:
            self._over_since = now
        return now >= self._over_since + self._scenario.settle_s

    def _is_working(self, now: float) -> bool:
        """Whether a workload runs that will end, or waits that may yet be served."""
        if next(self._recorder.running(), None) is not None:
            return True
        if next(self._recorder.waiting(), None) is None:
            return False
        since = max(self._recorder.moved, self._busy_until)
        if now - since < QUIET_S:
            return True
        # The wait that proves it is no part of what happened.
        self._ended_at = since + self._scenario.settle_s
        return False

    def _endless(self, now: float) -> str:
        waits = sorted({work.key for work in self._recorder.waiting()})
        runs = sorted({body.work.key for body in self._recorder.running()})
        what = []
        if self._next < len(self._moments):
            moment = self._moments[self._next]
            what.append(
                f"the timeline goes on at {manifest_duration(moment.at_s)} ({moment.place})"
            )
        if runs:
            what.append(_still("run", runs))
        elif waits:
            what.append(_still("wait", waits))
        elif self._actor.busy:
            what.append("something that was begun goes on")
        why = ", ".join(what) or "it does not end"
        return f"it was cut at its limit of {manifest_duration(now)}: {why}; raise limit, or say when it ends"

    # -- results -----------------------------------------------------------------------------
    def _report(self) -> None:
        if self._tell is not None:
            self._tell(
                RunProgress(
                    name=self._scenario.name,
                    seconds=self.now,
                    horizon=self._horizon,
                )
            )

    def _record(self) -> RunRecord:
        counters: Mapping[str, float] = {
            "sessions": self._daemons.sessions,
            "daemons": self._daemons.starts,
            "changes": self._changes,
        }
        made = self._recorder.record(
            name=self._scenario.name,
            ground=self._site.name,
            seed=self._scenario.seed,
            seconds=self.now if self._ended_at is None else self._ended_at,
            epoch=self._epoch,
        )
        return attrs.evolve(
            made,
            starts=start_records(self._daemons.compared, epoch=self._epoch),
            acts=tuple(self._acts),
            broken=tuple(self._watch.broken),
            counters=counters,
        )


def _still(does: str, works: Sequence[str]) -> str:
    if len(works) == 1:
        return f"{works[0]} still {does}s"
    return f"{len(works)} workloads still {does}, the first is {works[0]}"


def _horizon(scenario: Scenario, acts: Sequence[TimelineMoment]) -> float:
    """How long it lasts at least, as far as its text tells."""
    if scenario.ends_s is not None:
        return scenario.ends_s
    spans = [each.span.until_s for each in scenario.expect if each.span.kind != "end"]
    return max(spans + [each.at_s for each in acts[-1:]], default=0.0) + scenario.settle_s
