"""Whom of long lines sessions look at: chosen once while all that it rests on is the same, and gangs followed by identity."""

from __future__ import annotations

import random

import pytest

from gpusched.api.pod.pod import GangAnnotations, PodPhase
from gpusched.base.clock import SystemClock
from gpusched.pluginhost.guard import PluginGuard
from gpusched.session.decide import decide
from gpusched.session.framework.accounts.gang_lines import _changes
from gpusched.session.state.order import tenant_looks
from gpusched.session.state.session_cache import SessionCache
from tests.populations import WHOLE
from tests.session.state.kept_histories import DECIDED
from tests.session.state.test_gang_rounds import Rounds


def rounds_of(seed):
    """Rounds through lines that are too long for a session while gangs end, come and start, each session as soon as it was held."""
    rng = random.Random(seed)
    rounds = Rounds(
        *rng.choices(range(8, 40), k=rng.randint(1, 4)), work=rng.choice([2000, 3000, 9000])
    )
    c = rounds.c.nodes(3, prefix="more", gpus=8)
    for node in range(3):
        for slot in range(8):
            c.pod(
                f"runs-{node}-{slot}", gpus=1, node=f"more-{node}", slots=1 << slot, plan="p",
                scheduled=c.now - 5, phase=PodPhase.RUNNING,
                hints=GangAnnotations(expected_duration_ns=rng.randrange(100, 9000) * 10**9),
            )  # fmt: skip
    queues = sorted(c.cache.take_snapshot(c.now).queues.queues.keys() - {"root", "default"})
    for number in range(30):
        c.gang(
            f"small-{number}", pods=1 + number % 2, gpus=1 + number % 3, queue=rng.choice(queues)
        )
    running = [f"runs-{node}-{slot}" for node in range(3) for slot in range(8)]
    rng.shuffle(running)
    for number in range(40):
        rounds.session()
        yield rounds.c
        if c.decision.plan.binds or c.decision.plan.preemptions:
            c.when.carry_out(c.decision.plan)
            rounds.changes += 1
        elif rng.random() < 0.5:
            c.gone(running.pop()) if running and rng.random() < 0.8 else c.gang(
                f"new-{number}", pods=1, gpus=rng.choice([1, 2, 9]), queue=rng.choice(queues)
            )
            rounds.changes += 1
        c.now -= rng.choice([0.0, 0.5, 0.9])


def test_lines_that_a_change_does_not_concern_are_not_chosen_from_anew(monkeypatch):
    """Given lines that were at rest, when a change follows a change, then who is looked at of each is known, but of the one with another gang."""
    chosen = []
    anew = tenant_looks._choose_anew

    def counted(basis, costs):
        chosen.append(basis.before.queue)
        return anew(basis, costs)

    monkeypatch.setattr(tenant_looks, "_choose_anew", counted)
    rounds = Rounds(30, 30, 30)
    rounds.until_rest()
    began = rounds.c.now

    def change():
        rounds.c.now = began  # no turns of those that do not press
        rounds.changes += 1
        return rounds.session()[0]

    for _ in range(3):
        change()
    chosen.clear()
    assert change() == change() == {"g0-0", "g1-0", "g2-0"}
    assert chosen == []
    rounds.c.gang("new", pods=1, gpus=9, queue="q1")
    assert "new" in change()
    assert chosen == ["q1"]


@pytest.mark.parametrize("seed", range(30))
def test_gangs_that_came_and_went_are_found_wherever_they_stand(seed):
    """Given two snapshots, what is told of them is what their gangs by identity differ in."""
    rng = random.Random(seed)
    before = tuple(object() for _ in range(rng.randint(0, 12)))
    now = [each for each in before if rng.random() < 0.8]
    for _ in range(rng.randint(0, 3)):
        now.insert(rng.randint(0, len(now)), object())
    gone, fresh = _changes(before, tuple(now))
    assert set(gone) == set(before) - set(now)
    assert set(fresh) == set(now) - set(before)
    assert len(gone) == len(set(gone))
    assert len(fresh) == len(set(fresh))


@pytest.mark.parametrize("seed", range(60) if WHOLE else (1, 4, 7))
def test_rounds_through_long_lines_go_on_as_if_nothing_were_kept(seed):
    """Given more gangs than sessions look at, and changes while rounds go on, then each session is as anew."""
    for c in rounds_of(seed):
        guard = PluginGuard(SystemClock())
        anew = decide(c.snapshot, c.policy, guard=guard, session_cache=SessionCache())
        assert [name for name in DECIDED if getattr(c.decision, name) != getattr(anew, name)] == []
