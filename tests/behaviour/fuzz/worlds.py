"""Small clusters of fuzzed objects, through the codecs, the cache and several whole sessions.

A finding is whatever raises: out of the codecs, the cache or a session; and what these contained,
as each of that is a defect too. Every world follows from its number.
"""

from __future__ import annotations

import json
import random
import traceback
from collections.abc import Callable
from typing import Any, Final

import attrs

from gpusched.api.foreign import kinds
from gpusched.api.meta.codec import DEFECT
from gpusched.api.meta.identity import Rejected
from gpusched.api.serializer.codecs import CODECS
from gpusched.base.clock import SystemClock
from gpusched.cache.cache import Cache
from gpusched.cache.snapshot import Snapshot
from gpusched.config.model import Config, PlacementConfig
from gpusched.io.watch.discovery import foreign_codec
from gpusched.io.watch.informers import (
    KindEventHandler,
    make_event_handlers,
    make_foreign_event_handler,
)
from gpusched.pluginhost.guard import PluginGuard
from gpusched.pluginhost.registry import load_policy
from gpusched.session.containment.set_aside import Containment
from gpusched.session.decide import Decision, decide
from gpusched.session.state.session_cache import SessionCache
from gpusched.session.status.next_wakeup import next_wakeup
from gpusched.testing.apply_plan import PlanApplication
from tests.behaviour.fuzz.objects import GANGS, FuzzedObjects, Obj

EPOCH: Final = 1_800_000_000.0
SESSIONS: Final = 4
TIMES: Final = 3
"""Looks at a cluster in which nothing but the time has changed, after each session."""
_ACTIONS: Final = ("enqueue", "allocate", "preempt", "reclaim", "consolidate", "backfill")
_SMALL: Final = (
    "namespaces", "priorityclasses", "poddisruptionbudgets", "resourcequotas",
    "persistentvolumeclaims", "persistentvolumes", "storageclasses",
)  # fmt: skip
GREEDY: Final = Config(actions=_ACTIONS, placement=PlacementConfig(solver="greedy"))
SOLVING: Final = Config(actions=_ACTIONS, placement=PlacementConfig(time_budget_s=0.02))


@attrs.frozen
class FuzzFinding:
    """Something raised.

    Attributes:
        seed: of the world.
        what: ``crash`` or what was contained.
        where: exception and place, the same for one defect.
        story: the stack.
    """

    seed: int
    what: str
    where: str
    story: str


@attrs.define
class FuzzCounts:
    """What was put through."""

    objects: int = 0
    rejected: int = 0
    sessions: int = 0
    kept: int = 0
    binds: int = 0
    claims: int = 0
    stops: int = 0
    switches: int = 0
    findings: list[FuzzFinding] = attrs.Factory(list)


class FuzzedCluster:
    """One cluster.

    Args:
        seed: from which everything follows.
        tally: is added to.
        oddness: how many of a hundred objects are mangled.
    """

    def __init__(self, seed: int, tally: FuzzCounts, *, oddness: int = 25) -> None:
        self.seed = seed
        self.tally = tally
        self._rng = random.Random(seed)
        config = SOLVING if seed % 8 == 0 else GREEDY
        self._config = config
        self._policy = load_policy(config)
        self._now = EPOCH
        # Worlds with few odd objects get further: what is odd in them meets what runs.
        odd = oddness if seed % 2 else oddness // 5
        self._objects = FuzzedObjects(self._rng, epoch=EPOCH, oddness=odd)
        self._cache = Cache(config.scheduler_names)
        self._sinks: dict[str, tuple[Any, KindEventHandler]] = {
            kind: (CODECS[kind], sink)
            for kind, sink in make_event_handlers(self._cache, self._reject).items()
        }
        for kind in kinds.ALL:
            sink = make_foreign_event_handler(self._cache, kind, self._reject)
            self._sinks[kind.name] = (foreign_codec(kind), sink)
            if kind.source:
                served = kinds.ServedForeignKind(
                    f"{kind.group}/{kind.versions[0]}", kind.plural, True
                )
                self._cache.foreign.served[kind.kind, kind.source] = served
        self._cache.foreign.set_read(frozenset(kinds.WORKLOADS))
        self._guard, self._session_cache = PluginGuard(SystemClock()), SessionCache()
        self._containment = Containment()

    def run(self) -> None:
        """Objects, sessions, and objects again between them."""
        try:
            self._populate()
            for _ in range(SESSIONS):
                self._session()
                self._let_time_pass()
                self._now += self._rng.choice((1, 30, 400, 4000, 100_000))
                self._objects.now = self._now
                for _ in range(self._rng.randrange(12)):
                    self._disturb()
                for number in range(self._rng.randrange(3)):
                    for kind, obj in self._objects.rush(f"h{number}"):
                        self._put(kind, obj)
        except Exception as error:  # noqa: BLE001 - that is what is looked for
            self._find("crash", error)

    # -- objects -----------------------------------------------------------------------------
    def _populate(self) -> None:
        rng, make = self._rng, self._objects
        for _ in range(rng.randrange(2, 9)):
            self._put("nodes", make.node())
        for _ in range(rng.randrange(6)):
            self._put("queues", make.queue())
        for _ in range(rng.randrange(3)):
            self._put("topologies", make.topology())
        for kind in _SMALL * 2:
            if make.chance(50):
                self._put(kind, make.other(kind))
        for gang in rng.sample(GANGS, rng.randrange(3, 9)):
            if make.chance(75):
                self._put("podgroups", make.group(gang))
            if make.chance(25):
                self._put("jobs", make.job(gang))
            for number in range(rng.randrange(1, 6)):
                self._put("pods", make.pod(gang, number))
        for _ in range(rng.randrange(4)):
            self._foreign()

    def _disturb(self) -> None:
        make, gang = self._objects, self._rng.choice(GANGS)
        match self._rng.randrange(8):
            case 0:
                self._put("nodes", make.node())
            case 1:
                self._put("queues", make.queue())
            case 2:
                self._put("podgroups", make.group(gang))
            case 3:
                self._put("jobs", make.job(gang))
            case 4:
                self._foreign()
            case 5:
                self._put(kind := self._rng.choice(_SMALL), make.other(kind))
            case _:
                self._put("pods", make.pod(gang, self._rng.randrange(5)))

    def _foreign(self) -> None:
        kind = self._rng.choice(kinds.ALL)
        self._put(kind.name, self._objects.foreign(kind.kind, kind.source))

    def _put(self, kind: str, obj: Obj) -> None:
        """As the watch would show it."""
        codec, sink = self._sinks[kind]
        self.tally.objects += 1
        event = "DELETED" if self._objects.chance(4) else "ADDED"
        line = json.dumps({"type": event, "object": obj}).encode()
        shown = codec.decode_event(line)
        if isinstance(shown.item, Rejected) and shown.item.field == DEFECT:
            try:
                codec.entity_of(json.dumps(obj).encode())
            except Exception as error:  # noqa: BLE001 - its stack tells which defect it is
                self._find(f"contained while reading {kind}", error)
                return
        if shown.item is not None:
            sink.apply(shown.type, shown.item)

    def _reject(self, kind: str, rejected: Rejected) -> None:
        self.tally.rejected += 1
        if rejected.field == DEFECT:
            self._found(f"contained while reading {kind}", rejected.why, rejected.message)

    # -- sessions ----------------------------------------------------------------------------
    def _session(self) -> None:
        snapshot = self._cache.take_snapshot(self._now)
        for _, error in self._cache.take_count_errors():
            self._find("contained while counting", error)
        next_wakeup(snapshot)
        decision = self._decide_on(snapshot)
        self.tally.sessions += 1
        self._judge(decision)
        self._compare_with_nothing_kept(snapshot, decision)
        plan = decision.plan
        self.tally.binds += len(plan.binds)
        self.tally.claims += len(plan.preemptions)
        self.tally.stops += len(plan.stops)
        self.tally.switches += len(plan.job_changes)
        version = self._version()
        carrying = PlanApplication(cache=self._cache, now=self._now, version=version)
        carrying.plan(plan, gone=self._rng.random() < 0.5)

    def _let_time_pass(self) -> None:
        """Nothing but the time changes, to moments before and after which decisions say that they stay."""
        for _ in range(TIMES):
            decision = self._decide_on(self._cache.take_snapshot(self._now))
            left_s = decision.stays_until - self._now
            if left_s > 0 and self._rng.random() < 0.7:
                self._now += min(left_s, 10.0 ** self._rng.randrange(6)) * self._rng.random()
            else:
                self._now += self._rng.choice((0.5, 1.0, 7.0, 70.0))
            self._objects.now = self._now
            snapshot = self._cache.take_snapshot(self._now)
            after = self._decide_on(snapshot)
            self.tally.kept += after.kept
            self._compare_with_nothing_kept(snapshot, after)

    def _decide_on(self, snapshot: Snapshot) -> Decision:
        self._guard.begin_session()
        decision = decide(
            snapshot,
            self._policy,
            guard=self._guard,
            session_cache=self._session_cache,
            placement=self._config.placement,
            containment=self._containment,
        )
        self._cache.rounds = decision.rounds
        self._cache.expected_starts = decision.expected_starts
        self._cache.spare_room = decision.spare_room
        return decision

    def _compare_with_nothing_kept(self, snapshot: Snapshot, decision: Decision) -> None:
        """What is kept from the sessions before must not change what is decided."""
        if decision.set_aside or decision.degraded is not None or decision.faults:
            return
        guard = PluginGuard(SystemClock())
        guard.begin_session()
        anew = decide(
            snapshot, self._policy, guard=guard, session_cache=SessionCache(),
            placement=self._config.placement,
        )  # fmt: skip
        if anew.plan != decision.plan:
            story = f"{decision.plan}\n\n{anew.plan}"
            self._found("decided otherwise with nothing kept", str(snapshot.revision), story)

    def _version(self) -> Callable[[], str]:
        numbers = iter(range(10**9, 2 * 10**9))
        prefix = f"{self.tally.sessions}"
        return lambda: f"{prefix}{next(numbers)}"

    def _judge(self, decision: Decision) -> None:
        for entry in decision.contained:
            fault = entry.fault
            self._found(
                f"contained: {entry.suspect.what} in {fault.stage}",
                f"{fault.kind} at {fault.place}", fault.story,
            )  # fmt: skip
        if decision.degraded is not None and decision.degraded.fault is not None:
            fault = decision.degraded.fault
            self._found(f"degraded in {fault.stage}", f"{fault.kind} at {fault.place}", fault.story)
        for message in decision.faults:
            self._found("a plugin failed", message, message)
        for record in decision.searches:
            for message in record.faults:
                self._found("a search failed", message, message)

    # -- findings ----------------------------------------------------------------------------
    def _find(self, what: str, error: BaseException) -> None:
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{last.filename.rpartition('/')[2]}:{last.lineno}"
        story = "".join(traceback.format_exception(error))
        self._found(what, f"{type(error).__name__} at {place}", story)

    def _found(self, what: str, where: str, story: str) -> None:
        self.tally.findings.append(FuzzFinding(self.seed, what, where, story))


def fuzz_sessions(
    first: int, *, objects: int, most_worlds: int = 10**9, oddness: int = 25
) -> FuzzCounts:
    """Worlds from a seed on, until so many objects went through.

    Args:
        first: seed of the first world; the next has the next one.
        objects: at least so many.
        most_worlds: at most so many.
        oddness: how many of a hundred objects are mangled.
    """
    tally = FuzzCounts()
    for seed in range(first, first + most_worlds):
        FuzzedCluster(seed, tally, oddness=oddness).run()
        if tally.objects >= objects:
            break
    return tally
