"""What policies say of the keys by which gangs were sorted, and what is said where one says nothing."""

from __future__ import annotations

from typing import ClassVar

import attrs
import pytest
from gpusched_plugins.order.drf import Drf, DrfArgs
from gpusched_plugins.order.gang import Gang
from gpusched_plugins.order.priority import Priority, PriorityArgs
from gpusched_plugins.order.sla import Sla
from gpusched_plugins.queues.fairshare import FairShare, FairShareArgs

from gpusched.actions.allocate import Allocate
from gpusched.actions.backfill import Backfill
from gpusched.actions.enqueue import Enqueue
from gpusched.plugin import KeyMeaning
from gpusched.session.decide import decide
from gpusched.session.state.policy import Policy
from gpusched.testing.given import Given
from gpusched.view.access import EVERYTHING
from gpusched.view.follower import SeenSession, ViewFollower
from gpusched.view.store import ViewStore


@attrs.frozen
class Moody:
    """Orders gangs by the number in their name; ``tells`` says how its keys are told."""

    name: ClassVar[str] = "moody"
    api: ClassVar[int] = 1
    tells: str = ""

    def open(self, hooks, _view):
        """See the class."""
        hooks.gang_order(lambda gang: ("mood", int(gang.key.name[1:])))

    def __getattr__(self, name):
        if name != "tell_gang_order" or not self.tells:
            raise AttributeError(name)
        return self._tell

    def _tell(self, gang, key):
        if self.tells == "raises":
            raise LookupError("no such mood")
        if self.tells == "text":
            return "gloomy"
        return KeyMeaning("", ""), KeyMeaning(
            f"m{key[1]}", f"mood {key[1]}\nof\x1b {gang.key.name}"
        )


class Shown:
    """The order of a cluster's waiting gangs, as a view shows it that follows its sessions."""

    def __init__(self, *plugins, nodes=1):
        self.cluster = Given(policy=Policy((Enqueue(), Allocate(), Backfill()), (plugins,)))
        self.cluster.nodes(nodes, gpus=8)
        self.store, self.follower = ViewStore(), ViewFollower()

    def look(self):
        """Hold a session without carrying it out; the number of turns and terms that are told."""
        c = self.cluster
        snapshot = c.cache.take_snapshot(c.now)
        decision = decide(
            snapshot, c.policy, guard=c.guard, session_cache=c.session_cache, placement=c.placement
        )
        seen = SeenSession(
            snapshot=snapshot, plan=decision.plan, order=decision.order, plugins=c.policy.plugins
        )
        kinds = []
        for frame in self.follower.changes(seen):
            if frame is not None:
                self.store.take(frame)
                kinds.append(type(frame).__name__)
        return kinds.count("TurnPut"), kinds.count("QueueTermsPut")

    def line(self):
        """Names and orders of gangs in line."""
        waiting = self.store.waiting_gangs(EVERYTHING)
        found = {gang.metadata.name: self.store.order(gang, EVERYTHING) for gang in waiting}
        return {name: order for name, order in found.items() if order.position}

    def terms(self, name, policy):
        """Value and sentence of a policy's terms of a gang."""
        terms = self.line()[name].terms
        return [(term.value, term.message) for term in terms if term.policy == policy]


def full(*plugins, nodes=1, **queue):
    """Such a cluster, whose nodes a gang of queue ``q`` holds."""
    shown = Shown(*plugins, nodes=nodes)
    shown.cluster.queue("q", **queue).queue("r")
    shown.cluster.gang("holds", pods=nodes, gpus=8, queue="q", created=1.0)
    shown.cluster.when.bound()
    return shown


@pytest.mark.parametrize(
    ("tells", "term", "message", "fault"),
    [
        ("words", ("m5", "mood 5 of g5"), "mood 5 of g5; that one: mood 3 of g3", []),
        ("", ("mood, 5", "policy moody counts mood, 5, and smaller goes first"), "", []),
        ("raises", ("mood, 5", ""), "", [("moody", "LookupError: no such mood")]),
        ("text", ("mood, 5", ""), "", [("moody", "answered str in place of KeyMeaning")]),
    ],
)
def test_a_policy_of_another_author_is_told(tells, term, message, fault):
    """Given an order that says what its keys mean, says nothing, fails or answers nonsense: its place is told."""
    shown = full(Moody(tells))
    for number in (5, 3):
        shown.cluster.gang(f"g{number}", pods=1, gpus=8, queue="q", created=float(number))
    shown.look()
    assert list(shown.line()) == ["g3", "g5"]
    ((value, sentence),) = shown.terms("g5", "moody")
    assert value == term[0]
    assert sentence.replace("\x1b", "") == term[1] or not term[1]
    assert shown.line()["g5"].decided_by == "moody"
    because = shown.line()["g5"].message.replace("\x1b", "")
    assert because.endswith(
        message or "because policy moody counts 5; that one: policy moody counts 3"
    )
    assert shown.follower.order.take_faults() == fault
    assert shown.follower.order.take_faults() == []


def test_shares_are_told_in_numbers():
    """Given queues with shares: what each holds of what it is due, and its priority, decide and are told."""
    shown = full(FairShare(), Priority(), Gang(), nodes=2)
    shown.cluster.gang("q1", pods=1, gpus=8, queue="q", created=10.0)
    shown.cluster.gang("r1", pods=1, gpus=8, queue="r", created=20.0)
    shown.look()
    assert list(shown.line()) == ["r1", "q1"]
    told = shown.terms("q1", "fairshare")
    assert told[0] == ("over", "queue q holds more than it is due")
    assert ("24/8", "queue q holds 16 of its due 8 nvidia.com/gpu, 24 with it") in told
    assert ("8/8", "queue r holds 0 of its due 8 nvidia.com/gpu, 8 with it") in (
        shown.terms("r1", "fairshare")
    )
    assert shown.line()["q1"].decided_by == "fairshare"


def test_priority_of_queues_is_told_first_where_it_decides_first():
    """Given shares that come after priority: so do their terms."""
    shown = full(FairShare(args=FairShareArgs(order="priority")), priority=3)
    shown.cluster.gang("q1", pods=1, gpus=8, queue="q", created=10.0)
    shown.cluster.gang("r1", pods=1, gpus=8, queue="r", created=20.0)
    shown.look()
    assert list(shown.line()) == ["q1", "r1"]
    assert shown.terms("q1", "fairshare")[0] == ("p3", "queue q has priority 3")
    assert shown.line()["r1"].message.endswith(
        "because queue r has priority 0; that one: queue q has priority 3"
    )


def test_orders_that_are_asked_for_are_told():
    """Given queues by priority and by dominant share, and a maxWait that is over: each says so."""
    plugins = (
        Sla(), Priority(args=PriorityArgs(queues=True)), Drf(args=DrfArgs(queues=True)), Gang(),
    )  # fmt: skip
    shown = full(*plugins, nodes=2, max_wait_ns=60 * 10**9)
    c = shown.cluster
    c.gang("overdue", pods=1, gpus=8, queue="q", created=c.now - 300)
    c.gang("fresh", pods=1, gpus=8, queue="q", created=c.now - 1, priority=7)
    shown.look()
    assert list(shown.line()) == ["overdue", "fresh"]
    assert shown.line()["fresh"].decided_by == "sla"
    assert shown.terms("overdue", "sla")[1][0] == "overdue"
    assert shown.terms("fresh", "priority") == [
        ("0", "queue q has priority 0"), ("7", "its priority is 7"),
    ]  # fmt: skip
    ((share, sentence),) = shown.terms("fresh", "drf")
    assert share == "150.0 %"
    assert sentence.startswith("queue q would hold 150.0 %")


def test_only_turns_that_are_another_are_told():
    """Given many that wait: nothing is told of a session like the last one, and of a new gang two turns."""
    shown = full(FairShare(), Priority(), Gang())
    for number in range(40):
        shown.cluster.gang(f"g{number:02}", pods=1, gpus=8, queue="q", created=10.0 + number)
    assert shown.look() == (40, 1)
    assert shown.look() == (0, 0)
    shown.cluster.gang("new", pods=1, gpus=8, queue="q", created=20.5)
    turns, queues = shown.look()
    assert (turns, queues) == (2, 0)
    assert list(shown.line())[10:13] == ["g10", "new", "g11"]
    assert shown.line()["g39"].position == 41


def test_both_sides_of_what_a_queue_is_due_are_told():
    """Given a queue that deserves nothing behind one that is due what it needs, then both are told in words."""
    shown = Shown(FairShare(FairShareArgs()), Priority(PriorityArgs()))
    shown.cluster.queue("due", limits={"deserved": {"nvidia.com/gpu": 16}})
    shown.cluster.queue("lent", limits={"deserved": {"nvidia.com/gpu": 0}}, weight=0)
    shown.cluster.gang("holds", pods=1, gpus=8, queue="due", created=1.0)
    shown.cluster.when.bound()
    shown.cluster.gang("more", pods=2, gpus=8, queue="due", created=2.0)
    shown.cluster.gang("last", pods=2, gpus=8, queue="lent", created=3.0)
    shown.look()
    assert list(shown.line()) == ["more", "last"]
    assert shown.line()["last"].message == (
        "is after PodGroup default/more because queue lent is due nothing of what it needs; "
        "that one: queue due is due some of what it needs"
    )
