"""A policy for tests of carrying out: who has a higher priority takes room of whoever has less."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, ClassVar

import attrs
import pytest

import gpusched.io.cycle.policy_loader
from gpusched.session.allocate.gang_placement import place_ignoring_reservations
from gpusched.session.framework.reasons import Reason

PREEMPTED = "needs the room"
Obj = dict[str, Any]


@attrs.frozen
class TakeRoom:
    """Whole gangs of lower priority, in order of their keys, until the gang fits."""

    name: ClassVar[str] = "take-room"

    def run(self, session: Any) -> None:
        """See ``Action``."""
        for gang in session.gangs:
            if (
                gang.missing_members
                and session.outcomes.is_admitted(gang)
                and not session.nominations.has_nomination(gang)
            ):
                self._take(session, gang)

    def _take(self, session: Any, gang: Any) -> None:
        with session.pipelining():
            statement = session.statement()
            for _, victim in sorted(session.snapshot.placed_gangs.items()):
                if place_ignoring_reservations(session, gang, statement) is None:
                    break
                statement.rollback(len(statement.evictions))
                if victim.priority < gang.priority and victim.placed:
                    for member in victim.placed:
                        if member.pod.uid not in session.nominations.evicted:
                            session.evict(statement, victim, member)
            else:
                if place_ignoring_reservations(session, gang, statement) is not None:
                    statement.discard()
                    return
            if not statement.evictions:
                statement.discard()
                return
            session.nominations.nominate(
                gang,
                statement,
                action="preempt",
                reason=Reason.PREEMPTED,
                message=f"{gang.key} {PREEMPTED}",
            )
            session.outcomes.refuse(gang, Reason.PREEMPTION_IN_PROGRESS, "room is made for it")


def priority(world: Any, name: str, value: int) -> None:
    """A PriorityClass."""
    world.client.create(
        "priorityclasses.scheduling.k8s.io",
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
        },
    )


def gang(world: Any, name: str, count: int, *, high: bool = False, **job: Any) -> None:
    """A PodGroup and a Job whose pods belong to it; ``high``: before all others."""
    world.group(name, minMember=count, **({"priorityClassName": "high"} if high else {}))
    world.job(name, count, group=name, **job)


def uids(pods: list[Obj]) -> set[str]:
    """Of some pods."""
    return {pod["metadata"]["uid"] for pod in pods}


def evictions(world: Any) -> list[str]:
    """Names of the pods whose eviction the API accepted, in order."""
    return [
        write.path.split("/")[-2] for write in world.journal if write.path.endswith("/eviction")
    ]


def writes(world: Any, *ends: str) -> list[tuple[str, str, Obj]]:
    """Path end, name of the object and body of the daemons' writes, in order."""
    return [
        (end, write.path.split("/")[6], json.loads(write.body))
        for write in world.journal
        for end in ends
        if write.path.endswith(end)
    ]


async def low_and_high(world: Any, **daemon: Any) -> Any:
    """Two nodes full of a gang ``low``; the daemon that placed it."""
    await world.start(nodes=2)
    priority(world, "high", 1000)
    first = world.daemon(**daemon)
    gang(world, "low", 2)
    await world.until(lambda: len(world.running("low")) == 2)
    return first


@pytest.fixture
def scene():
    """What these tests do and look at."""
    return SimpleNamespace(
        gang=gang, priority=priority, uids=uids, evictions=evictions, writes=writes,
        low_and_high=low_and_high, preempted=PREEMPTED,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def taking(monkeypatch):
    """Daemons of these tests preempt by the rules of ``TakeRoom`` and no others."""
    original = gpusched.io.cycle.policy_loader.load_policy

    def load(config: Any) -> Any:
        policy = original(config)
        kept = tuple(a for a in policy.actions if a.name in {"enqueue", "allocate"})
        return attrs.evolve(policy, actions=(*kept, TakeRoom()))

    monkeypatch.setattr(gpusched.io.cycle.policy_loader, "load_policy", load)
