"""Rounds through lines that are too long for one session: everybody is looked at, once, and then all rest."""

from __future__ import annotations

import attrs
import pytest

from gpusched.api.pod.pod import GangAnnotations, PodPhase
from gpusched.config.model import DEFAULT_LIMITS
from gpusched.session.state.order.round_progress import RoundProgress
from gpusched.testing.given import Given
from tests.session.state.kept_histories import KeptHistory


class Rounds:
    """A full cluster with lines of these lengths, and sessions that follow each other as the daemon's do."""

    def __init__(self, *lengths: int, work: int = 3000) -> None:
        self.c = Given().nodes(1, gpus=8)
        self.c.cache.use_limits(attrs.evolve(DEFAULT_LIMITS, session_work=work))
        self.c.pod(
            "runs", gpus=8, node="node-0", slots=255, plan="p", scheduled=self.c.now - 5,
            phase=PodPhase.RUNNING, hints=GangAnnotations(expected_duration_ns=300 * 10**9),
        )  # fmt: skip
        for queue, length in enumerate(lengths):
            self.c.queue(f"q{queue}")
            for number in range(length):
                self.c.gang(f"g{queue}-{number}", pods=1, gpus=9 + number, queue=f"q{queue}")
        self.progress, self.changes = RoundProgress(), 0

    def session(self):
        """Names of the gangs that it looked at, and whether another one follows."""
        c = self.c
        c.cache.rounds = self.progress.begin_session(self.changes, c.cache.rounds, now=c.now)
        before = c.cache.rounds
        plan = c.when.one_session()
        found = c.decision
        following = self.progress.note_session(
            self.changes, rounds=found.rounds, stays_until=found.stays_until, now=c.now
        )
        c.cache.rounds = before if following.rounds is None else following.rounds
        told = {status.gang.name for status in plan.gangs if not status.provisional} - {"runs"}
        return told, following.after_s is not None

    def until_rest(self, most=200):
        """All that was looked at until no session followed, and how many sessions that took."""
        seen = set()
        for number in range(most):
            told, more = self.session()
            seen |= told
            if not more:
                return seen, number + 1
        pytest.fail("it does not come to rest")


@pytest.mark.parametrize("lengths", [(30,), (30, 47), (31, 40, 53), (20, 21, 22, 23)])
def test_lines_of_any_lengths_come_to_rest_when_all_were_looked_at(lengths):
    """Given lines that are not through at the same time, none begins a new round until the last is through."""
    rounds = Rounds(*lengths)
    seen, sessions = rounds.until_rest()
    assert len(seen) == sum(lengths)
    assert sessions <= sum(lengths) + 1
    assert rounds.session()[1] is False, "nothing has changed"


def test_when_something_changes_everybody_is_looked_at_again():
    """Given lines that rest, when a gang comes, then all of them go through another round."""
    rounds = Rounds(25, 40)
    rounds.until_rest()
    rounds.c.gang("new", pods=1, gpus=9, queue="q0")
    rounds.changes += 1
    seen, _ = rounds.until_rest()
    assert len(seen) == 66


def test_what_changes_while_a_line_is_gone_through_is_not_missed():
    """Given a change in the middle of a round, who was looked at before it is looked at after it."""
    rounds = Rounds(25, 40)
    for _ in range(5):
        rounds.session()
    rounds.changes += 1
    seen, _ = rounds.until_rest()
    assert len(seen) == 65


def test_lines_that_rest_keep_the_first_in_line_in_view():
    """Given a line that is through before another, its first gang is looked at in every session."""
    rounds = Rounds(10, 60)
    for _ in range(40):
        told, more = rounds.session()
        if not more:
            break
        assert "g0-0" in told


def test_gangs_are_looked_at_again_when_a_moment_has_come():
    """Given lines that rest, when what runs should have ended, then all are looked at, and rest again."""
    rounds = Rounds(25, 40)
    rounds.until_rest()
    rounds.c.now += 1
    told, more = rounds.session()
    assert told == {"g0-0", "g1-0"}
    assert not more
    rounds.c.now += 600
    seen, _ = rounds.until_rest()
    assert len(seen) == 65


@pytest.mark.parametrize("seed", range(6))
def test_a_gang_waits_for_its_turn_once(seed):
    """Given several namespaces in a queue, whoever is put off for others is not entered twice."""
    history = KeptHistory(seed)
    for _ in range(20):
        history.waits()
    work = (800, 1500, 3000)[seed % 3]
    history.c.cache.use_limits(attrs.evolve(history.c.cache.limits, session_work=work))
    for number in range(12):
        history.c.gang(
            f"ns{number}", pods=1 + number % 3, gpus=1 + number % 2, queue="abc"[number % 3],
            namespace=f"team-{number % 2}",
        )  # fmt: skip
    for _ in range(30):
        decision = history.decide()
        for each in decision.rounds:
            assert len({*each.left}) == len(each.left)
