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
        c.cache.may_end_early = self.progress.may_end_early
        before = c.cache.rounds
        plan = c.when.one_session()
        found = c.decision
        following = self.progress.note_session(
            self.changes, rounds=found.rounds, stays_until=found.stays_until, now=c.now,
            ended_early=found.ended_early,
        )  # fmt: skip
        c.cache.spare_room = found.spare_room
        if found.ended_early:
            c.cache.families.show_all_again()
        c.cache.rounds = before if following.rounds is None else following.rounds
        c.now += following.after_s or 0
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


def _rested_behind(pods=1, **line):
    """Lines at rest whose gangs are too large, but for one far behind, and a node that becomes free."""
    rounds = Rounds(40, 40)
    rounds.c.gang("z-far", pods=pods, gpus=8, queue="q0", **line)
    rounds.until_rest()
    rounds.c.gone("runs")
    rounds.changes += 1
    return rounds


def test_room_is_found_at_once_however_far_behind_the_gang_is_that_it_suffices_for():
    """Given long lines at rest, when room comes, then the next session starts the one gang that it suffices for."""
    rounds = _rested_behind()
    rounds.session()
    assert [each.gang.name for each in rounds.c.decision.plan.binds] == ["z-far"]


def _with_reserved_room(rounds, *, pairs):
    """A line whose first gang has a node reserved of which two GPUs are free, pairs whom they would suit, and a pod; another node is full.

    Args:
        rounds: of sessions, without lines.
        pairs: how many, no two of them alike.
    """
    c = rounds.c.queue("q0").nodes(2, prefix="more", gpus=8)
    c.gone("runs")
    c.pod("taken", gpus=8, node="node-0", slots=255, plan="p", phase=PodPhase.RUNNING)
    ends = GangAnnotations(expected_duration_ns=300 * 10**9)
    for slot in range(14):
        number, place = divmod(slot, 8)
        c.pod(
            f"small-{slot}", gpus=1, node=f"more-{2 - number}", slots=1 << place, plan="p", queue="q0",
            scheduled=c.now - 5, phase=PodPhase.RUNNING, hints=ends if number else None,
        )  # fmt: skip
    c.gang("a-first", pods=8, gpus=1, queue="q0")
    for number in range(pairs):
        c.gang(f"pair-{number:02d}", pods=2, gpus=1, cpu=1000 + number, queue="q0")
    c.gang("z-fits", pods=1, gpus=1, queue="q0")
    return c


def test_a_gang_for_which_room_is_free_comes_before_those_that_reserved_room_would_suit():
    """Given free GPUs that are reserved for the first in line, and many whom they would suit, when another one becomes free, then who fits beside is looked at at once."""
    rounds = Rounds(work=24_000)
    c = _with_reserved_room(rounds, pairs=90)
    rounds.until_rest()
    assert set(c.cache.spare_room) == {"more-1"}
    c.gone("small-0")
    rounds.changes += 1
    told, _ = rounds.session()
    assert "z-fits" in told
    assert len(told) < 40


def test_reserved_room_is_kept_while_gangs_that_were_put_off_have_their_turns():
    """Given sessions that spend more than was estimated, and put gangs off, then none of these takes the room that is reserved for the first in line."""
    rounds = Rounds(work=3000)
    c = _with_reserved_room(rounds, pairs=30)
    c.gone("small-0")
    started, cut = set(), False
    for _ in range(40):
        rounds.changes += 1
        rounds.session()
        started.update(each.gang.name for each in c.decision.plan.binds)
        cut = cut or any(each.cut for each in c.cache.rounds)
    assert cut
    assert started <= {"z-fits"}


def test_room_that_comes_in_the_middle_of_a_round_is_found_at_once():
    """Given a round that has looked at a gang in vain, when room comes for it, then it need not wait for the next round."""
    rounds = Rounds(40, 40)
    rounds.c.gang("g0-2-fits", pods=1, gpus=8, queue="q0")
    rounds.until_rest()
    rounds.c.gang("new", pods=1, gpus=9, queue="q0")
    rounds.changes += 1
    seen, more = set(), True
    while "g0-2-fits" not in seen:
        told, more = rounds.session()
        seen |= told
    assert more, "the round goes on"
    rounds.c.gone("runs")
    rounds.changes += 1
    rounds.session()
    assert [each.gang.name for each in rounds.c.decision.plan.binds] == ["g0-2-fits"]


def test_those_for_whom_no_node_has_room_have_their_turns_a_second_apart():
    """Given lines at rest, when a gang comes, then it is looked at with the first in line, and the others from a second later on."""
    rounds = Rounds(40, 40)
    rounds.until_rest()
    began = rounds.c.now
    rounds.c.gang("new", pods=1, gpus=9, queue="q0")
    rounds.changes += 1
    assert rounds.session()[0] == {"g0-0", "g1-0", "new"}
    assert rounds.c.now == began + 1
    assert len(rounds.session()[0]) > 3
    rounds.c.now -= 0.5
    rounds.changes += 1  # half a second after that session
    assert rounds.session()[0] == {"g0-0", "g1-0"}
    assert rounds.c.now == began + 2
    assert len(rounds.session()[0]) > 3


def test_a_gang_that_was_seen_without_pods_has_its_turn_when_they_come():
    """Given a PodGroup that sessions saw without pods, when its pods come, then the next session looks at it."""
    rounds = Rounds(40, 40)
    rounds.c.group("late", queue="q1", min_member=1)
    rounds.until_rest()
    rounds.c.pod("late-0", group="late", gpus=9)
    rounds.changes += 1
    told, _ = rounds.session()
    assert "late" in told


def test_a_gang_for_which_the_room_is_gone_keeps_its_turn():
    """Given room for one of many gangs, when it has started, then the others are looked at in the round all the same."""
    rounds = Rounds(40, 40)
    for number in range(6):
        rounds.c.gang(f"z-fits-{number}", pods=1, gpus=8, queue="q0")
    rounds.until_rest()
    rounds.c.gone("runs")
    rounds.changes += 1
    told, _ = rounds.session()
    (start,) = rounds.c.decision.plan.binds
    assert start.gang.name == "z-fits-0"
    assert not {name for name in told if name.startswith("z-fits")}
    rounds.c.when.accept(start)
    rounds.changes += 1
    seen, _ = rounds.until_rest()
    assert {f"z-fits-{number}" for number in range(1, 6)} <= seen


def _with_idle_nodes():
    """Lines at rest, and gangs that may not use the nodes that would have room for them."""
    rounds = Rounds(20, 20)
    rounds.c.nodes(1, prefix="idle", gpus=8)
    for number in range(40):
        rounds.c.gang(
            f"barred-{number:02d}", pods=1, gpus=1, cpu=1000 + number, queue="q0",
            node_selector={"pool": "none"},
        )  # fmt: skip
    rounds.until_rest()
    rounds.changes += 1
    return rounds


def test_room_that_gangs_may_not_have_keeps_no_session_busy():
    """Given more gangs than a session's share that only seem to have room, when something changes, then sessions come to rest."""
    rounds = _with_idle_nodes()
    began, seen = rounds.c.now, set()
    for _ in range(60):
        seen |= rounds.session()[0]
    assert rounds.c.now > began, "sessions follow each other at once"
    seen |= rounds.until_rest()[0]
    assert {f"barred-{number:02d}" for number in range(40)} <= seen


def test_changes_that_follow_each_other_leave_nobody_out():
    """Given more gangs that only seem to have room than a session looks at, everybody is looked at while changes go on."""
    rounds = _with_idle_nodes()
    for number in range(40):
        rounds.c.node(f"idle-{number:02d}", gpus=8, labels={"pool": "none"})
        rounds.c.pod(f"taken-{number}", gpus=8, node=f"idle-{number:02d}", phase=PodPhase.RUNNING)
    seen = set()
    for _ in range(120):
        rounds.changes += 1
        rounds.c.now += 0.5
        told, _ = rounds.session()
        seen |= told
    assert {f"barred-{number:02d}" for number in range(40)} <= seen


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


def _session_of(history, progress, changes):
    """When another session follows, None for never, and the changes that are known then; what it decides is carried out."""
    cache, now = history.c.cache, history.c.now
    cache.rounds = progress.begin_session(changes, cache.rounds, now=now)
    before, found = cache.rounds, history.decide()
    following = progress.note_session(
        changes, rounds=found.rounds, stays_until=found.stays_until, now=now
    )
    cache.rounds = before if following.rounds is None else following.rounds
    if found.plan.has_effects:
        history.carry_out(found)
        return 0.0, changes + 1
    return following.after_s, changes


@pytest.mark.parametrize("seed", [3, 5, 11])
def test_no_history_keeps_sessions_busy_at_one_moment(seed):
    """Given tenants whose gangs cost more than their share, whatever happens, sessions follow each other at once only for so long.

    And when nothing happens any more, no session follows at all.
    """
    history = KeptHistory(seed)
    for _ in range(30):
        history.waits()
    for number in range(24):
        history.c.gang(
            f"ns{number}", pods=1 + number % 3, gpus=1 + number % 2, queue="abc"[number % 3],
            namespace=f"team-{number % 2}",
        )  # fmt: skip
    history.c.cache.use_limits(attrs.evolve(history.c.cache.limits, session_work=4000))
    progress, changes = RoundProgress(), 0
    for _ in range(15):
        at_once, after_s = 0, 0.0
        while after_s == 0.0:
            known = changes
            after_s, changes = _session_of(history, progress, changes)
            at_once = at_once + 1 if changes == known else 0
            assert at_once < 100
        history.c.now += after_s or 5.0
        history.change()
        changes += 1
    sessions = 0
    while after_s is not None:
        after_s, changes = _session_of(history, progress, changes)
        history.c.now += after_s or 0.0
        sessions += 1
        assert sessions < 300, "it does not come to rest"
