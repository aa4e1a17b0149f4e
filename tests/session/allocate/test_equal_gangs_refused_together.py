"""Equal gangs that stand behind each other are refused at once, and told what each would be told alone."""

from __future__ import annotations

import attrs
import pytest

from gpusched.api.pod.pod import GangAnnotations
from gpusched.base.clock import SystemClock
from gpusched.cache.gangs.gang import Gang
from gpusched.config.model import DEFAULT_LIMITS
from gpusched.pluginhost.guard import PluginGuard
from gpusched.session.decide import Decision, decide
from gpusched.session.start.gang_start import GangStarts
from gpusched.session.state.session_cache import SessionCache
from gpusched.testing.given import Given
from tests.populations import one_of
from tests.session.state.test_alike_gangs import Crowd, stripped

SESSIONS = 4


def told(decision: Decision) -> tuple[object, ...]:
    """All that is decided and told, turns and room for later included."""
    return (
        stripped(decision.plan), decision.order, decision.reserved, decision.expected_starts,
        decision.waiting, decision.rounds, decision.ended_early, decision.settled, decision.stays_until,
    )  # fmt: skip


def one_by_one(monkeypatch: pytest.MonkeyPatch, c: Given) -> Decision:
    """What is decided of the last snapshot where each gang is refused by itself."""
    with monkeypatch.context() as patched:
        patched.setattr(GangStarts, "refuse_alike_behind", lambda _starts, _gang: [])
        guard = PluginGuard(SystemClock())
        return decide(c.snapshot, c.policy, guard=guard, session_cache=SessionCache())


def refused_together(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many gangs are refused at once behind another, each time, from now on."""
    found: list[int] = []
    original = GangStarts.refuse_alike_behind

    def counted(starts: GangStarts, gang: Gang) -> list[Gang]:
        gangs = original(starts, gang)
        found.append(len(gangs))
        return gangs

    monkeypatch.setattr(GangStarts, "refuse_alike_behind", counted)
    return found


def test_a_line_of_equal_jobs_is_refused_at_once(monkeypatch):
    """Given forty Jobs of which four have room and two have some reserved, the rest is refused in one go, and all is told as alone."""
    c = Given().nodes(2, gpus=8).queue("a")
    c.cache.use_limits(attrs.evolve(DEFAULT_LIMITS, reservations=2))
    for number in range(40):
        c.job(
            f"j{number:02}", parallelism=2, completions=2, indexed=True, suspended=True,
            queue="a", gpus=2, hints=GangAnnotations(expected_duration_ns=300 * 10**9),
        )  # fmt: skip
    together = refused_together(monkeypatch)
    c.when.one_session()
    assert max(together) > 30
    assert told(c.decision) == told(one_by_one(monkeypatch, c))
    assert [turn.gang.name for turn in c.decision.order.turns] == [
        f"j{number:02}" for number in range(4, 40)
    ]


@pytest.mark.long
@pytest.mark.parametrize("seed", one_of(4, range(32)))
def test_a_session_decides_as_one_that_refuses_each_by_itself(seed, monkeypatch):
    """Given long lines of few kinds, in queues with caps and strict orders, under limits of work and of reservations."""
    crowd = Crowd(seed)
    rng, c = crowd.rng, crowd.c
    limits = {
        "reservations": rng.choice([1, 2, 64]),
        "session_work": rng.choice([600, 3_000, DEFAULT_LIMITS.session_work]),
    }
    c.cache.use_limits(attrs.evolve(DEFAULT_LIMITS, **limits))
    for _ in range(rng.randint(20, 60)):
        crowd.arrive()
    for _ in range(SESSIONS):
        c.when.one_session()
        assert told(c.decision) == told(one_by_one(monkeypatch, c))
        c.when.carried_out(gone=rng.random() < 0.7)
        crowd.go_on()
