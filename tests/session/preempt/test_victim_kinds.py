"""Gangs that run are kept by kind between sessions as they would be found anew."""

from __future__ import annotations

import random

import pytest

from gpusched.session.preempt.claims import session_starts
from gpusched.session.preempt.claims.session_starts import PlacedGangs
from gpusched.session.preempt.claims.victim_kinds import QueueKinds


def _told(kinds):
    """Keys by kind, in the order in which they are asked for, and those of all others."""
    lines = {
        kind: [gang.key for gang in line.youngest(0, len(line))]
        for kind, line in kinds.lines.items()
    }
    return lines, set(kinds.others)


@pytest.mark.parametrize("a_session", [0, 2, 8192])
@pytest.mark.parametrize("seed", range(3))
def test_kinds_are_those_of_gangs_that_are_looked_at_anew(seed, a_session, given, monkeypatch):
    """Given pods and gangs that come, go and change queues, then each queue has the kinds that it would have anew."""
    monkeypatch.setattr(session_starts, "_KINDS_A_SESSION", a_session)
    rng, kept, there = random.Random(seed), PlacedGangs(), {}
    given.nodes(20, gpus=8)
    for queue in ("a", "b"):
        given.queue(queue)
    lines = 0
    for number in range(40):
        if there and rng.random() < 0.4:
            name = rng.choice(sorted(there))
            given.gone(name)
            del there[name]
        else:
            name, slot = f"runs-{number}", number % 8
            there[name] = number
            given.pod(
                name, queue=rng.choice("ab"), node=f"node-{number // 8}", slots=1 << slot, gpus=1,
                plan="p", priority=rng.choice((0, 10)), scheduled=given.now - rng.randrange(5),
            )  # fmt: skip
        if rng.random() < 0.5:
            continue
        placed = given.cache.take_snapshot(given.now).placed_gangs
        kept.follow(placed)
        if rng.random() < 0.5:
            continue
        for queue in ("a", "b"):
            anew = QueueKinds.unlike(())
            for gang in placed.values():
                if gang.queue == queue:
                    anew.add([gang])
            assert _told(kept.kinds_of_queue(queue)) == _told(anew)
            assert len(kept.kinds_of_queue(queue)) == len(kept.of_queue(queue))
            lines += len(anew.lines)
    assert lines


def test_kinds_are_found_while_nothing_changes(given, monkeypatch):
    """Given more gangs that run than a session after a change finds kinds for, then a session in which nobody came or went finds the others."""
    monkeypatch.setattr(session_starts, "_KINDS_A_SESSION", 1)
    given.nodes(1, gpus=8).queue("a")
    for slot in range(8):
        given.pod(
            f"runs-{slot}", queue="a", node="node-0", slots=1 << slot, gpus=1, plan="p",
            scheduled=given.now - slot,
        )  # fmt: skip
    placed = given.cache.take_snapshot(given.now).placed_gangs
    kept = PlacedGangs()
    kept.follow(placed)
    assert kept.of_unknown_kind == 7
    kept.follow(placed)
    assert kept.of_unknown_kind == 0
    assert len(kept.kinds_of_queue("a")) == 8
