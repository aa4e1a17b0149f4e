"""Who follows gangs from session to session is told which are others, however long ago it looked."""

from __future__ import annotations

import random

import pytest

from gpusched.cache.gangs.counting import placed_gangs
from gpusched.cache.gangs.counting.placed_gangs import LOGGED_MAX, PlacedLog, changed_keys


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("anew_from", [0, 3, 64])
def test_snapshots_show_what_was_there(seed, anew_from, monkeypatch):
    """Given random changes, then each snapshot is what there was, however much it shares with others."""
    monkeypatch.setattr(placed_gangs, "_BASE_ANEW_FROM", anew_from)
    rng, log, gangs, shown = random.Random(seed), PlacedLog(), {}, []
    for _ in range(40):
        touched = {rng.randrange(30) for _ in range(rng.randrange(4))}
        for key in touched:
            gangs[key] = object()
            if rng.random() < 0.4:
                del gangs[key]
        shown.append((log.show(gangs, touched), dict(gangs)))
    for now, then in shown:
        assert len(now) == len(then)
        assert [now.get(key) for key in range(30)] == [then.get(key) for key in range(30)]
        assert [key in now for key in range(30)] == [key in then for key in range(30)]
        assert {key: now[key] for key in then} == then
        with pytest.raises(KeyError):
            now[30]
        assert dict(now) == then
        assert now == then
        assert sorted(now) == sorted(then)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("anew_from", [0, 64])
def test_changes_since_any_snapshot_are_those_of_comparing_all(seed, anew_from, monkeypatch):
    """Given random changes, then the log tells between any two snapshots what comparing them tells."""
    monkeypatch.setattr(placed_gangs, "_BASE_ANEW_FROM", anew_from)
    rng, log, gangs = random.Random(seed), PlacedLog(), {}
    shown = [log.show(gangs, ())]
    for _ in range(LOGGED_MAX + 20):
        touched = {rng.randrange(30) for _ in range(rng.randrange(4))}
        for key in touched:
            match rng.randrange(3):
                case 0:
                    gangs.pop(key, None)
                case 1:
                    gangs[key] = object()
        shown.append(log.show(gangs, touched))
    for _ in range(200):
        before, now = rng.choice(shown), rng.choice(shown)
        assert changed_keys(before, now) == changed_keys(dict(before), dict(now))


def test_a_pod_that_is_bound_changes_its_gang_alone(given):
    """Given gangs that run, when one more starts, then it alone is another."""
    given.nodes(2, gpus=4)
    for number in range(3):
        given.pod(f"runs-{number}", node="node-0", slots=1 << number, gpus=1, plan="p")
    before = given.cache.take_snapshot(given.now).placed_gangs
    assert given.cache.take_snapshot(given.now).placed_gangs is before
    given.pod("more", node="node-1", slots=1, gpus=1, plan="p")
    now = given.cache.take_snapshot(given.now).placed_gangs
    assert {key.name for key in changed_keys(before, now)} == {"more"}
    assert changed_keys(before, now) == changed_keys(dict(before), dict(now))
