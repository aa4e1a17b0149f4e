"""What is known of gangs that are alike, and of earlier sessions, changes no decision."""

from __future__ import annotations

import random
from collections.abc import Callable

import attrs
import pytest

from gpusched.api.pod.pod import GangAnnotations, PodPhase
from gpusched.base.clock import SystemClock
from gpusched.cache.gangs.gang import Gang
from gpusched.cache.snapshot import Snapshot
from gpusched.config.model import DEFAULT_LIMITS
from gpusched.plugin import ALLOW, Hooks, Reason, Verdict, View, wait
from gpusched.pluginhost.guard import PluginGuard
from gpusched.session.decide import decide
from gpusched.session.state.equivalence import EquivalenceClass, EquivalenceClasses
from gpusched.session.state.plan import Plan
from gpusched.session.state.policy import Policy
from gpusched.session.state.session_cache import SessionCache
from gpusched.testing import entities
from gpusched.testing.authors import cluster_under
from gpusched.testing.given import Given
from tests.populations import one_of

pytestmark = pytest.mark.long

S = 10**9
SESSIONS = 4


class NobodyAlike(EquivalenceClasses):
    """Every gang is like no other: nothing is answered for several, nothing is looked up."""

    def class_of(self, gang: Gang) -> EquivalenceClass | None:
        """None."""
        del gang
        return None


def decided_afresh(snapshot: Snapshot, policy: Policy) -> Plan:
    """What a session decides that remembers nothing and asks everybody by itself."""
    session_cache = SessionCache()
    session_cache.equivalence = NobodyAlike()
    guard = PluginGuard(SystemClock())
    return decide(snapshot, policy, guard=guard, session_cache=session_cache).plan


class Crowd:
    """A small cluster on which many gangs of few kinds wait, start, end and change."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.c = Given().nodes(rng.randint(2, 6), gpus=8, cpu=64_000)
        self.queues = ["a", "b", "line"][: rng.randint(1, 3)]
        for name in self.queues:
            limits = {}
            if rng.random() < 0.5:
                limits["capability"] = {entities.GPU: rng.choice([6, 12, 20])}
            if rng.random() < 0.5:
                limits["deserved"] = {entities.GPU: rng.choice([4, 8])}
            ordering = "StrictFifo" if name == "line" else rng.choice(["Priority", "FairShare"])
            self.c.queue(name, limits=limits, ordering=ordering)
        self.made = 0
        self.kinds = [self.kind() for _ in range(rng.randint(1, 4))]

    def kind(self) -> dict[str, object]:
        """What all gangs of a kind have in common."""
        rng = self.rng
        return {
            "queue": rng.choice(self.queues),
            "pods": rng.choice([1, 2, 3, 4]),
            "gpus": rng.choice([0, 1, 2, 4, 8]),
            "cpu": rng.choice([1000, 8000, 32_000]),
            "priority": rng.choice([0, 0, 0, 5]),
            "lengths_s": rng.choice([[0], [60], [300], [0, 20, 60, 90, 300]]),
            "suspended": rng.random() < 0.5,
        }

    def arrive(self) -> None:
        """One gang more, of some kind."""
        rng, kind, name = self.rng, self.rng.choice(self.kinds), f"g{self.made:03}"
        self.made += 1
        spec = {"gpus": kind["gpus"], "cpu": kind["cpu"]}
        length_ns = rng.choice(kind["lengths_s"]) * S
        if kind["suspended"]:
            self.c.job(
                name, parallelism=kind["pods"], completions=kind["pods"], indexed=True,
                suspended=True, queue=kind["queue"],
                hints=GangAnnotations(expected_duration_ns=length_ns), **spec,
            )  # fmt: skip
            return
        created = self.c.now - rng.randint(0, 50)
        self.c.group(
            name, queue=kind["queue"], min_member=kind["pods"], created=created,
            expected_duration_ns=length_ns,
        )  # fmt: skip
        self.c.pods(
            name, kind["pods"], group=name, created=created, priority=kind["priority"], **spec
        )

    def go_on(self) -> None:
        """Time passes: some end, some come, and what was decided is carried out."""
        self.c.now += self.rng.choice([0, 1, 30, 100])
        for pod in sorted(self.c.cache.pods.values(), key=lambda pod: pod.key):
            if pod.node and self.rng.random() < 0.2:
                self.c.gone(pod.name)
        for _ in range(self.rng.randint(0, 4)):
            self.arrive()


def stripped(plan: Plan) -> tuple[object, ...]:
    """All that is decided, and all that is told."""
    return (
        plan.binds, plan.preemptions, plan.stops, plan.job_changes,
        tuple(attrs.astuple(each, recurse=False) for each in plan.gangs),
        tuple(attrs.astuple(each, recurse=False) for each in plan.queues),
    )  # fmt: skip


@pytest.mark.parametrize("seed", one_of(4, range(24)))
def test_a_session_with_memory_decides_as_one_without(seed):
    """Plans, order, sentences, places in queues and expected starts, some sessions in a row."""
    crowd = Crowd(seed)
    for _ in range(crowd.rng.randint(4, 25)):
        crowd.arrive()
    for _ in range(SESSIONS):
        plan = crowd.c.when.one_session()
        assert stripped(plan) == stripped(decided_afresh(crowd.c.snapshot, crowd.c.policy))
        crowd.c.when.carried_out(gone=crowd.rng.random() < 0.7)
        crowd.go_on()


def asked_by(
    order: Callable[[Gang], tuple[int]], *, alike: bool, of_members: bool = True
) -> tuple[Given, list[str]]:
    """A cluster whose only order is this one, and the names of the gangs that were asked."""
    asked: list[str] = []

    def key(gang: Gang) -> tuple[int]:
        asked.append(gang.key.name)
        return order(gang)

    @attrs.frozen
    class Orders:
        name = "orders"
        api = 1

        def open(self, hooks: Hooks, _view: View) -> None:
            hooks.gang_order(key, alike=alike, of_members=of_members)

    return cluster_under(Orders()).nodes(1, gpus=1), asked


def test_a_key_of_its_own_is_asked_of_every_gang():
    """A policy that looks at names is asked of each, and its order holds among equal gangs."""
    c, asked = asked_by(lambda gang: (-int(gang.key.name[1:]),), alike=False)
    for number in range(5):
        c.gang(f"g{number}", pods=1, gpus=1)
    c.when.one_session()
    assert c.then.started() == ["g4"]
    assert sorted(set(asked)) == [f"g{number}" for number in range(5)]


def test_a_key_that_gangs_have_in_common_is_asked_once():
    """Of a hundred equal gangs one is asked, and the oldest starts."""
    c, asked = asked_by(lambda _gang: (0,), alike=True)
    for number in range(100):
        c.gang(f"g{number:02}", pods=1, gpus=1, created=entities.BORN - number)
    c.when.one_session()
    assert c.then.started() == ["g99"]
    assert len(set(asked)) == 1


@pytest.mark.parametrize(("of_members", "times"), [(True, 20), (False, 2)])
def test_a_key_for_which_no_member_counts_is_asked_once_of_gangs_of_unlike_pods(of_members, times):
    """Given pods that all differ, and two priorities, then one of each is asked where that is all that counts."""
    c, asked = asked_by(lambda gang: (-gang.priority,), alike=True, of_members=of_members)
    for number in range(20):
        c.pod(f"p{number:02}", gpus=1, cpu=100 + number, priority=5 if number == 9 else 0)
    c.when.one_session()
    assert c.then.started() == ["p09"]
    assert len(set(asked)) == times


def test_gangs_that_differ_in_length_alone_are_refused_room_together():
    """The first is told why it finds no place, the others the same; quota is asked of each."""
    asked: list[str] = []

    def short(gang: Gang) -> Verdict:
        asked.append(gang.key.name)
        if gang.terms.expected_duration_ns > 500 * S:
            return wait(Reason.WAITING_FOR_QUOTA, "is too long")
        return ALLOW

    @attrs.frozen
    class Short:
        name = "short"
        api = 1

        def open(self, hooks: Hooks, _view: View) -> None:
            hooks.quota_check(short)

    c = cluster_under(Short()).nodes(1, gpus=4)
    for number in range(8):
        c.group(f"g{number}", min_member=1, expected_duration_ns=(number * 100) * S)
        c.pods(f"g{number}", 1, group=f"g{number}", gpus=8)
    c.when.one_session()
    assert set(asked) == {f"g{number}" for number in range(8)}
    assert len({c.then.why(f"g{number}") for number in range(6)}) == 1
    assert "is too long" in c.then.why("g7")


def test_a_gang_that_changes_is_not_taken_for_what_it_was():
    """More members, another queue: what was known of the gang before does not count."""
    c = Given().nodes(1, gpus=4).queue("a").queue("b")
    c.job("j", parallelism=8, completions=8, suspended=True, queue="a", gpus=1)
    c.when.one_session()
    assert "8 pods" in c.then.why("j")
    c.job("j", parallelism=6, completions=6, suspended=True, queue="b", gpus=1)
    c.when.one_session()
    assert "6 pods" in c.then.why("j")
    assert c.then.status("j").queue == "b"


@pytest.mark.parametrize("tells", [True, False])
def test_the_order_of_a_long_line_is_kept_while_what_keys_rest_on_stays(tells):
    """Given a line too long for a session, its gangs are asked again when what they are ordered by is another."""
    ranks, asked = [1], []

    def key(gang: Gang) -> tuple[int]:
        asked.append(gang.key.name)
        return (ranks[-1] * int(gang.priority),)

    @attrs.frozen
    class Orders:
        name = "orders"
        api = 1

        def open(self, hooks: Hooks, _view: View) -> None:
            told = {"rests_on": lambda: ranks[-1]} if tells else {}
            hooks.gang_order(key, alike=True, **told)

    c = cluster_under(Orders()).nodes(2, gpus=1)
    c.cache.use_limits(attrs.evolve(DEFAULT_LIMITS, session_work=1500))
    c.pod("runs", gpus=1, node="node-0", slots=1, plan="p", phase=PodPhase.RUNNING)
    for number in range(12):
        c.gang(f"g{number:02}", pods=3, gpus=1, cpu=1000 + number, priority=number)

    def first_in_line(change: int) -> tuple[str, int]:
        """After another change; and how many gangs were asked for it."""
        asked.clear()
        c.cache.rounds = tuple(attrs.evolve(each, changed=True) for each in c.cache.rounds)
        c.pod(f"small-{change}", cpu=1, node="node-1", plan="p", phase=PodPhase.RUNNING)
        c.when.one_session()
        return c.cache.rounds[0].head[0].name, len(set(asked))

    first_in_line(0)
    name, _ = first_in_line(1)
    assert name == "g00"
    name, asked_again = first_in_line(2)
    assert name == "g00"
    assert (asked_again < 12) is tells
    ranks.append(-1)
    assert first_in_line(3) == ("g11", 12)


@pytest.mark.parametrize("raised", [True, False])
def test_what_keys_rest_on_that_cannot_be_told_is_a_fault_and_keys_are_asked_for(raised):
    """Given a policy that fails to say what its keys rest on, its order holds and the session tells of it."""

    def broken() -> list[int]:
        if raised:
            raise LookupError("no such mood")
        return [1]  # no basis of anything: it can be changed

    @attrs.frozen
    class Orders:
        name = "orders"
        api = 1

        def open(self, hooks: Hooks, _view: View) -> None:
            hooks.gang_order(lambda gang: (-gang.priority,), alike=True, rests_on=broken)

    c = cluster_under(Orders()).nodes(1, gpus=1)
    c.cache.use_limits(attrs.evolve(DEFAULT_LIMITS, session_work=1500))
    for number in range(12):
        c.gang(f"g{number:02}", pods=1, gpus=1, cpu=1000 + number, priority=number)
    c.when.one_session()
    assert c.then.started() == ["g11"]
    says = "no such mood" if raised else "unhashable"
    assert [each for each in c.decision.faults if says in each]
