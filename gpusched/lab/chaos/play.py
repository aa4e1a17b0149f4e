"""One script played from an empty cluster to the moment when nothing moves any more.

Safety is looked at after each write; when the last fault is over the cluster must come to rest,
with every gang running that can, and a new daemon must find nothing to do.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import attrs

from gpusched.base.classes import frozen
from gpusched.base.clock import EPOCH, LoopClock
from gpusched.config.model import DEFAULT, Config, PluginChoice, PluginTier
from gpusched.devcluster.cluster import ClusterOptions, DevCluster, start
from gpusched.devcluster.storage.store import Change
from gpusched.lab.chaos.daemon_knowledge import daemon_knowledge, differences
from gpusched.lab.chaos.daemons import DaemonFleet, owning_task_factory
from gpusched.lab.chaos.invariant_checker import InvariantChecker, TimedFinding
from gpusched.lab.chaos.scripts.script import ChaosScript, ScriptStep
from gpusched.lab.chaos.starvation import starving_gangs
from gpusched.lab.chaos.steps.objects import CLAIMS, GROUPS, JOBS, QUEUES, TOPOLOGIES
from gpusched.lab.chaos.steps.step_actions import StepRunner
from gpusched.lab.virtual_time.cluster_run import rare_garbage_collection
from gpusched.lab.virtual_time.history_digest import HistoryDigest
from gpusched.lab.virtual_time.loop import Deadlock, TimeLimitExceeded, run_virtual
from gpusched.lab.virtual_time.process_pause import PausableLoop
from gpusched.testing import invariants
from gpusched.testing.invariants.model import RECOVERY_S, Finding

_TOKEN: Final = "chaos"  # noqa: S105 - opens nothing but this run
LIMIT_S: Final = 6000.0
"""Virtual seconds after which a run counts as one that never ends."""
QUIET_S: Final = 320.0
"""Without a write for so long all nominated and reserved room has been given up."""
AUDITED_S: Final = 660.0
"""The same where watch events were lost: an audit of what there is finds them in this time."""
SETTLE_S: Final = 3000.0
"""After the last fault it may take so long until nothing moves."""
PERIOD_S: Final = 30.0
"""Sessions that nothing asks for: a third of the shipped number, as each costs milliseconds."""
TURNS_MAX: Final = 20_000
"""Turns of the loop at one moment after which a run counts as one that never ends."""
_APPLIED_S: Final = 0.5
_LOOK_S: Final = 5.0
_CALM_S: Final = 45.0
_MOVING: Final = frozenset({"pods", GROUPS, QUEUES, JOBS, CLAIMS})
_TOLD_MAX: Final = 4
_SLACK_S: Final = 15.0


@frozen(kw_only=True)
class ChaosRun:
    """What came of a script.

    Attributes:
        seen: what did not hold.
        digest: SHA-256 over every write of the cluster.
        writes: how many there were.
        virtual_s: how long it took.
        counts: of what happened: starts, deaths, bindings, evictions, steps.
    """

    script: ChaosScript
    seen: tuple[TimedFinding, ...]
    digest: str
    writes: int
    virtual_s: float
    counts: dict[str, int]

    @property
    def ok(self) -> bool:
        """Whether every invariant held."""
        return not self.seen


def play_script(
    script: ChaosScript,
    *,
    config: Config = DEFAULT,
    tell: Callable[[bytes], None] | None = None,
    ready: Callable[[DevCluster, InvariantChecker], None] | None = None,
    until_first: bool = False,
) -> ChaosRun:
    """Play a script; the same script gives the same run, byte for byte.

    Args:
        script: see there.
        config: of the daemons; its actions are the script's, where it has some.
        tell: given each write as one line.
        ready: called when the cluster is there and nothing has happened.
        until_first: end with the first finding.
    """
    config = attrs.evolve(config, cycle=attrs.evolve(config.cycle, max_period_s=PERIOD_S))
    if script.actions:
        config = attrs.evolve(config, actions=script.actions)
    if script.stale_after:
        config = _with_stale_after(config, script.stale_after)
    run = _ScriptRun(script, config, tell, ready)
    run.until_first = until_first
    try:
        with rare_garbage_collection():
            return run_virtual(
                run.live,
                epoch=EPOCH,
                limit_s=LIMIT_S,
                loop_factory=lambda: _BoundedLoop(limit_s=LIMIT_S),
            )
    except (Deadlock, TimeLimitExceeded) as stuck:
        finding = Finding(invariant="I10", kind="Run", name="loop", sentence=str(stuck)[:600])
        return run.result(TimedFinding(at=run.now(), finding=finding))


def _with_stale_after(config: Config, value: str) -> Config:
    """The configuration with another time until broken gangs are stopped."""
    arguments = {"staleAfter": None if value == "never" else value}

    def changed(choice: PluginChoice) -> PluginChoice:
        return attrs.evolve(choice, arguments=arguments) if choice.name == "lifetime" else choice

    tiers = (PluginTier(tuple(map(changed, tier.plugins))) for tier in config.tiers)
    return attrs.evolve(config, tiers=tuple(tiers))


class _BoundedLoop(PausableLoop):
    """Ends a run whose time stands still while its tasks wake one another for ever."""

    _turns = 0
    _since = -1.0

    def _run_once(self) -> None:
        if self._virtual_s != self._since:
            self._since, self._turns = self._virtual_s, 0
        self._turns += 1
        if self._turns == TURNS_MAX:
            raise TimeLimitExceeded(f"{TURNS_MAX} turns of the loop, and time does not move")
        super()._run_once()  # type: ignore[misc]


class _FirstFinding(Exception):
    """Something was found, and more is not wanted."""


class _ScriptRun:
    """One chaos script while it is played."""

    def __init__(
        self, script: ChaosScript, config: Config, tell: Callable[[bytes], None] | None,
        ready: Callable[[DevCluster, InvariantChecker], None] | None,
    ) -> None:  # fmt: skip
        self._script = script
        self._config = config
        self._tell = tell
        self._ready = ready
        self._counts: Counter[str] = Counter()
        self._moved = 0.0
        self._recent: list[str] = []
        self._at = 0.0
        self._extra: list[TimedFinding] = []
        self.until_first = False

    def now(self) -> float:
        """Virtual seconds so far, as far as it is known."""
        return self._at

    async def live(self, clock: LoopClock) -> ChaosRun:
        """From the beginning to the end."""
        self._clock = clock
        asyncio.get_running_loop().set_task_factory(owning_task_factory)
        begin = clock.monotonic
        self._cluster = await start(
            ClusterOptions(clock=clock, seed=self._script.seed, token=_TOKEN, records=False)
        )
        store = self._cluster.core.store
        self._history = HistoryDigest(store, tell=self._tell)
        self._witness = InvariantChecker(store, begin, patience_of(self._script))
        store.observers.append(self._see)
        if self._ready is not None:
            self._ready(self._cluster, self._witness)
        reloads = any(step.do == "reload" for step in self._script.steps)
        self._fleet = DaemonFleet(
            self._cluster,
            clock=clock,
            epoch=EPOCH,
            token=_TOKEN,
            seed=self._script.seed,
            slots=self._script.daemons,
            config=self._config,
            latency=self._script.latency,
            thinks=self._script.thinks,
            reloads=reloads,
            sends=self._sends,
            wrote=self._wrote,
        )
        actor = self._actor = StepRunner(
            self._cluster, self._fleet, witness=self._witness, clock=clock
        )
        try:
            with suppress(_FirstFinding):
                await self._busy(actor)
                await self._settle()
        finally:
            self._at = clock.monotonic()
            await self._fleet.close()
            await self._cluster.close()
        self._counts["skipped"] = actor.skipped
        return self.result()

    def result(self, *more: TimedFinding) -> ChaosRun:
        """What came of it, and what else was found."""
        seen = sorted((*self._witness.seen, *self._extra, *more), key=lambda each: each.at)
        self._counts["starts"] = self._fleet.starts
        return ChaosRun(
            script=self._script,
            seen=tuple(seen),
            digest=self._history.digest,
            writes=self._history.writes,
            virtual_s=round(self._at, 3),
            counts=dict(self._counts),
        )

    # -- what happens ------------------------------------------------------------------------
    async def _busy(self, actor: StepRunner) -> None:
        for step in self._script.steps:
            await self._until(step.at)
            self._counts[step.do] += 1
            if "on" in step.args:
                actor.arm(step)
            else:
                await actor.do(step)
        await self._until(self._script.busy_s)
        await actor.finish()

    async def _until(self, at: float) -> None:
        """Sleep, and tell of daemons that broke."""
        while (left := at - self._clock.monotonic()) > 0:
            await self._clock.sleep(min(left, _LOOK_S))
            self._at = self._clock.monotonic()
            self._look()

    def _look(self) -> None:
        for at, why in self._fleet.crashes:
            finding = Finding(invariant="I14", kind="Daemon", name="", sentence=f"ended: {why}")
            self._extra.append(TimedFinding(at=round(at, 6), finding=finding))
        self._fleet.crashes.clear()
        for said in self._fleet.contained:
            self._witness.say(
                Finding(invariant="I14", kind="Daemon", name="", sentence=f"contained: {said}")
            )
        if self.until_first and (self._extra or self._witness.seen):
            raise _FirstFinding

    def _see(self, kind: str, change: Change) -> None:
        if kind in _MOVING:
            self._moved = self._clock.monotonic()
            self._recent = [*self._recent[-7:], f"{change.type} {kind} {change.key}"]

    def _sends(self, path: str, body: bytes) -> None:
        self._witness.sent(path, body)
        self._actor.occasion(path, body)

    def _wrote(self, method: str, path: str) -> None:
        self._counts["requests"] += 1
        if method == "POST" and path.endswith(("/binding", "/eviction")):
            self._counts[path.rpartition("/")[2]] += 1

    # -- the end -----------------------------------------------------------------------------
    async def _settle(self) -> None:
        """Faults are over: it comes to rest, and every gang runs that can."""
        self._cluster.faults.clear()
        self._fleet.heal()
        begun = self._moved = self._clock.monotonic()
        blind = any(step.args.get("how") == "drop" for step in self._script.steps)
        quiet_s = AUDITED_S if blind else QUIET_S
        while self._clock.monotonic() - self._moved < quiet_s:
            if self._clock.monotonic() - begun > SETTLE_S:
                what = ", ".join(self._recent[-4:])
                self._say(
                    "I10", f"objects still change {SETTLE_S:g} s after the last fault: {what}"
                )
                break
            await self._until(self._clock.monotonic() + _LOOK_S)
            self._witness.partial(begun, RECOVERY_S + _SLACK_S)
        self._judge()
        await self._check_restart()

    def _judge(self) -> None:
        """What must hold when nothing moves."""
        lists = self._lists()
        found = {
            "pods": lists["pods"],
            "nodes": lists["nodes"],
            "podgroups": lists[GROUPS],
            "topologies": lists[TOPOLOGIES],
        }
        for each in invariants.leaked_claims(lists[CLAIMS], lists["pods"]):
            self._witness.say(each)
        for each in invariants.findings(found, now=self._clock.now()):
            if each.invariant == "I3" and self._witness.is_held_by_budget(each.name):
                continue
            if each.invariant in {"I2", "I3", "I4", "I11", "I15"}:
                self._witness.say(each)
        if not any(process.leading for process in self._fleet.alive):
            self._say("I10", "nobody leads though no fault is in force")
        for sentence in starving_gangs(lists):
            self._say("I7", sentence)

    async def _check_restart(self) -> None:
        """I9, I16: a new daemon that finds these objects knows the same, and writes nothing."""
        # What is told of times may be one period old: both daemons decide at the same time.
        self._fleet.wake()
        await self._until(self._clock.monotonic() + _LOOK_S)
        seen_all = self._picture()
        await self._fleet.restart()
        self._moved, self._recent = -1.0, []
        await self._until(self._clock.monotonic() + _CALM_S)
        if self._moved >= 0 and not self._extra:
            what = ", ".join(sorted(set(self._recent))[:4])
            self._say("I9", f"a new daemon found nothing new and wrote: {what}")
        elif seen_all and not self._extra:
            for sentence in differences(seen_all, self._picture())[:_TOLD_MAX]:
                self._say("I16", sentence)

    def _picture(self) -> dict[str, object]:
        """What the leader knows."""
        leaders = [each for each in self._fleet.alive if each.leading and each.app is not None]
        return daemon_knowledge(leaders[0].app) if leaders and leaders[0].app is not None else {}

    def _lists(self) -> dict[str, list[Any]]:
        kinds = ("pods", "nodes", GROUPS, QUEUES, JOBS, TOPOLOGIES, CLAIMS)
        return {kind: self._cluster.client.list(kind) for kind in kinds}

    def _say(self, invariant: str, sentence: str) -> None:
        self._witness.say(Finding(invariant=invariant, kind="Cluster", name="", sentence=sentence))


def patience_of(script: ChaosScript) -> float:
    """How old what a daemon decides on may be, by the faults of the script."""
    way_s = _APPLIED_S + 4 * script.latency[1]  # an event, the last look at the gang, a binding
    return max((way_s + _blind_s(step) for step in script.steps), default=way_s)


def _blind_s(step: ScriptStep) -> float:
    """For how long a daemon cannot see what changes, by one fault."""
    lasts = float(step.args.get("for", 0.0))
    if step.do == "events":
        return lasts + 600.0 if step.args["how"] == "drop" else lasts + float(step.args["rate"])
    if step.do == "fault":
        fault = step.args["fault"]
        if fault["type"] == "stall":
            return lasts + 140.0
        if fault["type"] in {"drop", "expired", "truncate", "lag", "status", "lost", "delay"}:
            return lasts + 45.0
    if step.do in {"server", "restore"}:
        return float(step.args.get("down", 0.0)) + 45.0
    if step.do == "pause":
        return lasts + 20.0
    return 0.0
