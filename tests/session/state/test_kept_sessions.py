"""A session that is answered by an earlier one decides what it would decide anew."""

from __future__ import annotations

import attrs
import pytest

from gpusched.api.pod.pod import GangAnnotations, PodPhase
from gpusched.config.model import DEFAULT
from gpusched.io.decisions.decision_file import DecisionInputs, pack_decision, read_decision
from gpusched.pluginhost.registry import load_policy
from gpusched.session.backfill.estimates.start_ranges import range_stays_until, start_range
from gpusched.session.containment.kept_sessions import undeclared_parts
from gpusched.session.decide import decide
from gpusched.session.framework.reasons import Reason
from gpusched.session.framework.verdict import wait
from gpusched.session.state.session_cache import SessionCache
from gpusched.testing import entities
from tests.populations import WHOLE, one_of
from tests.session.state.kept_histories import KeptHistory, config
from tests.session.state.wide_histories import WideHistory

HISTORIES = 6


@pytest.mark.parametrize("shard", one_of(2, range(4)))
def test_kept_sessions_decide_what_new_ones_would(shard):
    """Given random histories, when changes and times come in between, then what is kept changes no decision."""
    kept = 0
    for seed in range(shard * HISTORIES, (shard + 1) * HISTORIES):
        history = KeptHistory(seed)
        for decision in history.play():
            assert history.differences(decision) == [], seed
            kept += decision.kept
    assert kept > HISTORIES


@pytest.mark.parametrize("seed", range(200 if WHOLE else 5))
def test_nothing_kept_changes_what_is_decided_about_any_kind_of_gang(seed):
    """Given histories with a tree of queues, users, pools, budgets and all kinds of gangs, then sessions are as anew."""
    history = WideHistory(seed)
    for decision in history.play():
        assert decision.faults == ()
        assert history.differences(decision) == []


@pytest.mark.parametrize("seed", range(40 if WHOLE else 2))
def test_what_is_recorded_of_any_kind_of_gang_is_decided_again(seed, tmp_path):
    """Given the same histories, when every fifth decision is written and read, then it comes to the same."""
    history, path = WideHistory(seed), tmp_path / "one.decision.gz"
    for number, decision in enumerate(history.play()):
        if number % 5 == 0:
            inputs = DecisionInputs(snapshot=history.snapshot, config=DEFAULT)
            path.write_bytes(pack_decision(inputs, decision.plan))
            assert history.decide_anew(read_decision(path).inputs.snapshot).plan == decision.plan


def test_a_session_is_kept_until_a_gang_ends(given):
    """Given a gang that waits for the end of another, then nothing is decided anew before that time."""
    lasts = GangAnnotations(expected_duration_ns=1000 * 10**9)
    given.nodes(1, gpus=2)
    given.pod("runs", node="node-0", slots=3, gpus=2, plan="p", scheduled=given.now, hints=lasts)
    given.gang("waits", pods=1, gpus=2)
    given.when.one_session()  # which shows the gang that runs
    first = given.when.one_session()
    for later_s, kept in ((1, True), (900, True), (98, True), (1, False)):
        given.now += later_s
        plan = given.when.one_session()
        assert given.decision.kept == kept, later_s
        if kept:
            assert attrs.evolve(plan, revision=first.revision) == first


def test_a_session_is_held_again_when_something_changes(given):
    """Given a cluster on which nothing happens, when a queue, a node or a pod changes, then it is looked at."""
    given.nodes(1, gpus=2).queue("a").gang("waits", pods=1, gpus=8, queue="a")
    changes = (
        lambda: given.queue("a", limits={"capability": {entities.GPU: 4}}),
        lambda: given.node("node-0", gpus=3),
        lambda: given.pod("another", gpus=9),
    )
    for change in changes:
        given.when.one_session()
        given.when.one_session()
        given.when.one_session()
        assert given.decision.kept
        change()
        given.when.one_session()
        assert not given.decision.kept


def test_room_that_waits_for_members_of_a_broken_gang_is_told_when_there_is_some(given):
    """Given a gang of which a member waits and another is missing, when a node comes, then its status says where room is held."""
    given.node("full", gpus=1)
    given.group("broken", min_member=3, phase="Running")
    given.pod(
        "runs", group="broken", node="full", slots=1, gpus=1, plan="p", scheduled=given.now - 5,
        phase=PodPhase.RUNNING,
    )  # fmt: skip
    given.pod("waits", group="broken", gpus=1, created=given.now - 3)
    given.when.one_session()
    before = given.then.status("broken")
    assert before.nominated == ()
    given.node("empty", gpus=4)
    given.when.one_session()
    held = ((given.then.uid("waits"), "empty"),)
    assert given.then.status("broken") == attrs.evolve(before, nominated=held)


def test_a_policy_that_does_not_say_what_it_depends_on_is_asked_each_time(given):
    """Given a policy of an author who declares nothing, then no session is answered by an earlier one."""

    class Counting:
        name, api = "counting", 1
        opened = 0

        def open(self, _hooks, _view):
            Counting.opened += 1

    tiers = (*given.policy.tiers, (Counting(),))
    given.policy = attrs.evolve(given.policy, tiers=tiers)
    given.nodes(1, gpus=2).gang("waits", pods=1, gpus=8)
    for _ in range(3):
        given.when.one_session()
        assert not given.decision.kept
    assert Counting.opened == 3


def test_every_shipped_policy_and_action_says_what_it_depends_on():
    """Given all of them, then sessions may be answered by earlier ones."""
    assert undeclared_parts(load_policy(config(usage=True, evicts=True))) == ()


def test_what_differs_from_a_decision_made_anew_is_told_and_not_used(given):
    """Given a policy that says falsely that it keeps nothing, when decisions are compared, then that is found."""

    class Forgetful:
        name, api = "forgetful", 1
        depends_on = given.policy.plugins[0].depends_on
        sessions = 0

        def open(self, hooks, _view):
            Forgetful.sessions += 1
            late = Forgetful.sessions > 2
            hooks.gang_ready(lambda _gang: _refusal(str(late)))

    given.policy = attrs.evolve(given.policy, tiers=(*given.policy.tiers, (Forgetful(),)))
    given.nodes(1, gpus=2).gang("waits", pods=1, gpus=1)
    cache, found = SessionCache(), []
    for _ in range(3):
        snapshot = given.cache.take_snapshot(given.now)
        found.append(
            decide(
                snapshot, given.policy, guard=given.guard, session_cache=cache,
                placement=given.placement, incremental="compared",
            )
        )  # fmt: skip
    assert found[0].differs == ""
    assert "an earlier session" in found[1].differs
    assert "gangs first" in found[1].differs
    assert found[1].plan.gangs[0].scheduled.message.endswith("True")


def _refusal(why):
    return wait(Reason.BACK_OFF, "late: {why}", why=why)


@pytest.mark.parametrize("factors", [(0.4, 1.7), (0.0, 1.0), (1.2, 3.0), (0.9, 0.95), (1.0, 1.0)])
@pytest.mark.parametrize("ahead", [1, 59, 61, 700, 3841, 20_000, 400_000])
def test_a_range_stays_as_long_as_it_says(factors, ahead):
    """Given a start that far ahead, then its range is the same until the moment that is told."""
    now = 1_767_225_600
    start = float(now + ahead)
    until = range_stays_until(now, start, factors)
    assert until > now
    last = min(int(until) - 1, now + ahead)
    for time in {now, last, (now + last) // 2, *range(max(now, last - 50), last)}:
        assert start_range(time, start, factors) == start_range(now, start, factors), time
