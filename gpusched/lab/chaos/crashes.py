"""A scenario played again and again, each time with the daemon dead at another of its writes.

The first run counts the writes. Then the daemon dies at the first of them, at the second, and so
on, before it is sent or when it is done, and another is started. However that comes: no invariant
may break, and in the end what was done without a death is done with one.

The other one may find a replica of the API server that is behind: for a while its lists and
watches show the cluster as it was some writes ago.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from gpusched.app import AppOptions
from gpusched.base.classes import frozen
from gpusched.io.client.credentials import ApiAccess, GivenCredentials
from gpusched.lab.chaos.faulty_connection import FaultyConnection, PlannedDeath, WatchTampering
from gpusched.lab.chaos.stale_replica import StaleReplica
from gpusched.lab.scenario.model.scenario import Scenario
from gpusched.lab.scenario.play.daemons import Daemons
from gpusched.lab.scenario.play.run import PlaySite, ScenarioRun, play_scenario
from gpusched.lab.scenario.target_cluster.embedded import EmbeddedTarget
from gpusched.lab.virtual_time.client_sessions import sessions_to
from gpusched.lab.virtual_time.cluster_run import ClusterRun, SimulationOptions, simulate_cluster

_BACK_S: Final = 1.0
_BEFORE_S: Final = 600.0
_MORE_S: Final = 120.0
"""So much longer may a run take that waits for a lease to lapse."""
_STORM: Final = 4
_STORM_LEAST: Final = 100
"""More writes than so many times those of a run without a death, and so many, are a storm."""
_BEHIND: Final = (1, 4, 16, 64)
"""By so many versions a replica is behind: one write, a gang's bindings, all of a small scenario."""
_STALE_S: Final = 45.0
"""A replica has caught up so long after the second daemon's start: long after it leads."""


@frozen(kw_only=True)
class CrashPoint:
    """One death, or one watch event that is lost.

    Attributes:
        what: ``before`` a write is sent, ``after`` it is done, or ``event`` for a lost one.
        number: of the write or event, counted from 1.
        behind: by so many versions are lists and watches old that the next daemon is told.
    """

    what: str
    number: int
    behind: int = 0

    def __str__(self) -> str:
        if self.what == "event":
            return f"event {self.number} lost"
        stale = f", then a replica {self.behind} versions behind" if self.behind else ""
        return f"dead {self.what} write {self.number}{stale}"


@frozen(kw_only=True)
class CrashRun:
    """What came of a run with one death.

    Attributes:
        point: where; None for the run without any.
        wrong: what did not hold.
        writes: that daemons sent.
        events: watch events that daemons were told.
        complete: how many workloads of each kind of end there were.
    """

    scenario: str
    point: CrashPoint | None
    wrong: tuple[str, ...]
    writes: int
    events: int
    complete: dict[str, int]


def crash_points(calm: CrashRun, *, every: int = 1, offset: int = 0) -> Iterator[CrashPoint]:
    """All deaths of a scenario, or every so-many-th of them.

    Args:
        calm: the run without any.
        every: one of so many.
        offset: of the first.
    """
    found = [
        CrashPoint(what=what, number=number)
        for number in range(1, calm.writes + 1)
        for what in ("before", "after")
    ]
    yield from found[offset % every :: every]


def stale(calm: CrashRun, *, every: int = 1, offset: int = 0) -> Iterator[CrashPoint]:
    """Each write after which it dies while the replica of the next one is behind, or some of them."""
    found = [
        CrashPoint(what="after", number=number, behind=behind)
        for number in range(1, calm.writes + 1)
        for behind in _BEHIND
    ]
    yield from found[offset % every :: every]


def lost_events(calm: CrashRun, *, every: int = 1, offset: int = 0) -> Iterator[CrashPoint]:
    """Each single watch event that is lost, or every so-many-th of them."""
    found = [CrashPoint(what="event", number=number) for number in range(1, calm.events + 1)]
    yield from found[offset % every :: every]


def play_with_death(
    scenario: Scenario, point: CrashPoint | None, calm: CrashRun | None = None
) -> CrashRun:
    """Play a scenario with one death.

    Args:
        scenario: see there.
        point: where the daemon dies; None for nowhere.
        calm: what comes of it without a death.
    """
    life = _CrashPlay(scenario, point)
    options = SimulationOptions(
        seed=scenario.seed,
        config=scenario.config,
        daemons=0,
        stage_files=scenario.stages,
        limit_s=scenario.limit_s + _BEFORE_S + _MORE_S,
    )
    run = simulate_cluster(life.live, options=options).value
    wrong = (
        [f"{each.invariant}: {each.sentence}" for each in run.record.broken] if run.record else []
    )
    if run.fault:
        wrong.append(f"a daemon broke: {run.fault}")
    complete = _ends(run)
    if calm is not None and scenario.ends_s is None:
        wrong += [
            f"{calm.complete[name]} workloads end {name} without a death, {complete.get(name, 0)} with"
            for name in sorted(calm.complete)
            if complete.get(name, 0) != calm.complete[name]
        ]
    if calm is not None and life.writes > _STORM * calm.writes + _STORM_LEAST:
        wrong.append(f"daemons sent {life.writes} writes, {calm.writes} without a death")
    return CrashRun(
        scenario=scenario.name,
        point=point,
        wrong=tuple(wrong),
        writes=life.writes,
        events=life.events,
        complete=complete,
    )


def _ends(run: ScenarioRun) -> dict[str, int]:
    """How many workloads ended, and how."""
    assert run.record is not None
    found: Counter[str] = Counter()
    for work in run.record.jobs:
        found["ended" if work.ended is not None else "not"] += 1
    return dict(found)


class _KillableLeader:
    """Stands for the process of a wire: its death is that of the leader."""

    def __init__(self, number: int, die: Callable[[], None]) -> None:
        self.number = number
        self.dead = False
        self.on_death = _nothing
        self._die = die

    def kill(self) -> None:
        """Mark the leader as dead."""
        self.dead = True
        self._die()


class _CrashPlay:
    """One run.

    Attributes:
        writes: that daemons sent so far.
        events: watch events that they were told.
    """

    def __init__(self, scenario: Scenario, point: CrashPoint | None) -> None:
        self._scenario = scenario
        self._point = point
        self._daemons: Daemons | None = None
        self._wires: list[FaultyConnection] = []
        self._later: list[asyncio.Task[None]] = []
        self._lost = _EventDropper(point.number if point and point.what == "event" else 0)

    @property
    def writes(self) -> int:
        """Writes that daemons sent, over all connections."""
        return sum(wire.writes for wire in self._wires)

    @property
    def events(self) -> int:
        """Watch events that daemons were told."""
        return self._lost.seen

    async def live(self, world: ClusterRun) -> ScenarioRun:
        """From the beginning to the end."""
        ground = EmbeddedTarget(world.cluster, world.clock)
        outside = contextvars.copy_context()
        seed = self._scenario.seed

        def daemon(number: int) -> AppOptions:
            wire = FaultyConnection(
                world.cluster.in_process,
                _KillableLeader(number, die),
                clock=world.clock,
                rng=random.Random(f"{seed}/wire/{number}"),  # noqa: S311  # repeatable
                outside=outside,
                latency=(0.0, 0.0),
                tampering=[self._lost],
            )
            if number == 0 and self._point is not None and self._point.what != "event":
                wire.death = PlannedDeath(
                    writes=self._point.number, answered=self._point.what == "after"
                )
            self._wires.append(wire)
            return AppOptions(
                config=self._scenario.config,
                clock=world.clock,
                rng=random.Random(f"{seed}/daemon/{number}"),  # noqa: S311  # repeatable
                kubeconfig=GivenCredentials(
                    ApiAccess(host=world.cluster.url, authorization=f"Bearer {world.cluster.token}")
                ),
                identity=f"daemon-{number}",
                inline=True,
                opened=sessions_to(wire),
            )

        def die() -> None:
            assert self._daemons is not None
            self._daemons.kill_leader()
            task = asyncio.get_running_loop().create_task(restart(), context=outside)
            self._later.append(task)

        async def restart() -> None:
            await world.clock.sleep(_BACK_S)
            assert self._daemons is not None
            behind = self._point.behind if self._point is not None else 0
            replica = None
            if behind:
                replica = StaleReplica(world.cluster, f"daemon-{self._daemons.starts}", behind)
            self._daemons.start()
            if replica is not None:
                await world.clock.sleep(_STALE_S)
                replica.catch_up()
                for wire in self._wires:
                    wire.cut_watches()

        def made(daemons: Daemons) -> None:
            self._daemons = daemons

        site = PlaySite(
            ground=ground, name="crashes", daemon=daemon, cluster=world.cluster, made=made
        )
        run = await play_scenario(self._scenario, site)
        ground.close()
        return run


class _EventDropper(WatchTampering):
    """Counts watch events, and loses one of them."""

    def __init__(self, lost: int) -> None:
        super().__init__("count", "", 0.0)
        self.lost = lost
        self.seen = 0

    def tampered_lines(
        self, lines: Sequence[bytes], past: Sequence[bytes], rng: random.Random
    ) -> Sequence[bytes]:
        """The lines without the one event that is lost."""
        del past, rng
        kept = []
        for line in lines:
            self.seen += 1
            if self.seen != self.lost:
                kept.append(line)
        return kept


def _nothing() -> None:
    """No observer: the call is ignored."""
