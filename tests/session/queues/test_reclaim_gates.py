"""Who may take back from whom: scenarios of queue trees, asked of the policies directly."""

from __future__ import annotations

import attrs
import pytest

from gpusched.api.gang.pod_group import SubGroup, TopologyRequest
from gpusched.api.meta.identity import GangKey
from gpusched.api.meta.resources import Resources
from gpusched.api.meta.units import DEVICE
from gpusched.session.framework.proposal import PREEMPT, RECLAIM, Chunk, Proposal
from gpusched.session.framework.sort_keys import joined_sort_key
from gpusched.session.framework.verdict import first_refusal
from gpusched.session.preempt.claims.giving_order import eviction_chunks
from gpusched.session.preempt.victim_pool import VictimGroup
from gpusched.session.preempt.victims import Victims
from gpusched.session.state.session import Session
from gpusched.testing.entities import GPU, NOW


def deserves(gpus, **more):
    """Limits of a queue that deserves so many GPUs."""
    return {"deserved": {GPU: gpus}, **{kind: {GPU: amount} for kind, amount in more.items()}}


def runs(c, gang, queue, gpus, *, pods=1, min_member=None, on="node-0", start=0, part="", **group):
    """A gang of which every member has its place."""
    least = pods if min_member is None else min_member
    c.group(gang, queue=queue, min_member=least, **group)
    for number in range(pods):
        first = start + number * gpus
        c.pod(
            f"{gang}-{number}", group=gang, gpus=gpus, cpu=100, node=on, plan="p", scheduled=NOW,
            slots=((1 << gpus) - 1) << first, rank=number, sub_group=part,
        )  # fmt: skip
    return c


class Court:
    """A session's policies, asked about a claimant and its victims, all by name."""

    def __init__(self, c):
        self.c = c
        snapshot = c.cache.take_snapshot(c.now)
        self.session = Session(
            snapshot,
            c.policy.plugins,
            c.policy.capabilities,
            guard=c.guard,
            session_cache=c.session_cache,
            placement=c.placement,
        )
        self.hooks = self.session.hooks
        self.gangs = {gang.key: gang for gang in snapshot.gangs} | dict(snapshot.placed_gangs)

    def gang(self, name):
        """Of that name."""
        return self.gangs[GangKey("PodGroup", "default", name)]

    def may_claim(self, claimant):
        """Whether it may reclaim at all."""
        return not first_refusal(self.hooks.reclaim_checks, self.gang(claimant)).refuses

    def may_lose(self, claimant, victim, action=RECLAIM):
        """Whether the victim may lose anything to the claimant."""
        pair = self.gang(claimant), self.gang(victim)
        return not first_refusal(self.hooks.victim_filters, *pair, action).refuses

    def verdict(self, claimant, *victims):
        """On whole victims, or on ``(victim, gpus)`` for a part."""
        chunks = []
        for each in victims:
            name, gpus = each if isinstance(each, tuple) else (each, None)
            gang = self.gang(name)
            taken = gang.allocated if gpus is None else Resources.of({GPU: gpus * DEVICE})
            chunks.append(Chunk(gang, taken))
        gang = self.gang(claimant)
        asked = self.session.view.minimum(gang)
        proposal = Proposal(claimant=gang, requests=asked, chunks=tuple(chunks))
        return first_refusal(self.hooks.reclaim_gates, proposal)

    def may_go(self, claimant, *victims):
        """Whether exactly these may go."""
        return not self.verdict(claimant, *victims).refuses

    def order(self, claimant, *victims):
        """The victims in the order in which they go where each costs the same."""
        claims = self.gang(claimant)
        orders = (*self.hooks.victim_orders, *self.hooks.victim_preferences)
        keys = {name: joined_sort_key(orders, claims, self.gang(name), RECLAIM) for name in victims}
        return sorted(victims, key=keys.__getitem__)


def test_deserved_beyond_the_cluster_is_no_claim_on_who_is_within_his(given):
    """8 GPUs, both deserve 6: who runs 6 keeps them (scenario 25)."""
    c = given.nodes(1, gpus=8).queue("a", limits=deserves(6)).queue("b", limits=deserves(6))
    runs(c, "v", "a", 6)
    runs(c, "w", "b", 2, start=6).gang("b1", pods=1, gpus=1, queue="b")
    court = Court(c)
    assert court.session.view.fair_share("a").get(GPU) == 6 * DEVICE
    assert court.session.view.fair_share("b").get(GPU) == 3 * DEVICE
    assert court.may_claim("b1")
    assert not court.may_lose("b1", "v")
    assert "queue 'a' is within what it deserves: it holds 6 nvidia.com/gpu of 6" in (
        court.verdict("b1", "v").message
    )


def test_a_loan_comes_back_as_far_as_it_is_one(given):
    """4 GPUs, each deserves 2, one runs 4 of at least 2: two go, and not a third (46)."""
    c = given.nodes(1, gpus=4).queue("q1", limits=deserves(2)).queue("q2", limits=deserves(2))
    runs(c, "v", "q2", 1, pods=4, min_member=2).gang("g", pods=2, gpus=1, queue="q1")
    court = Court(c)
    assert court.may_go("g", ("v", 1), ("v", 1))
    assert not court.may_go("g", ("v", 1), ("v", 1), ("v", 1))


def test_who_asks_for_more_than_he_is_due_gets_nothing(given):
    """A gang of 4 in a queue that is due 2 does not reclaim at all."""
    c = given.nodes(1, gpus=4).queue("q1", limits=deserves(2))
    c.queue("q2", limits=deserves(2, guarantee=2))
    runs(c, "v", "q2", 1, pods=4, min_member=2).gang("g", pods=4, gpus=1, queue="q1")
    court = Court(c)
    assert not court.may_claim("g")
    assert not court.may_go("g", "v")


def test_nobody_is_over(given):
    """Three deserve 2 of 4, two run 2 each: the third waits (47)."""
    c = given.nodes(1, gpus=4)
    for name in ("q1", "q2", "q3"):
        c.queue(name, limits=deserves(2))
    runs(c, "v2", "q2", 2)
    runs(c, "v3", "q3", 2, start=2).gang("g", pods=1, gpus=2, queue="q1")
    court = Court(c)
    assert not court.may_go("g", "v2")
    assert not court.may_go("g", "v3")


def test_a_level_that_is_within_its_own_protects_those_below(given):
    """The leaf and its parent are over, their department is not (48)."""
    c = given.nodes(1, gpus=2).queue("ga", limits=deserves(2)).queue("gb", limits=deserves(3))
    c.queue("pa", parent="ga", limits=deserves(2)).queue("qa", parent="pa", limits=deserves(2))
    c.queue("pb", parent="gb", limits=deserves(1)).queue("qb", parent="pb", limits=deserves(1))
    runs(c, "v", "qb", 2).gang("g", pods=1, gpus=2, queue="qa")
    court = Court(c)
    assert court.may_claim("g")
    assert not court.may_lose("g", "v")
    assert "queue 'gb'" in court.verdict("g", "v").message


def test_a_leaf_within_its_own_is_safe_though_its_department_is_over(given):
    """The department is over because of a gang that cannot go (49)."""
    c = given.nodes(1, gpus=2).queue("p1", limits=deserves(1)).queue("p2", limits=deserves(1))
    c.queue("c1", parent="p1", limits=deserves(1)).queue("c1b", parent="p1")
    c.queue("c2", parent="p2")
    runs(c, "v", "c1", 1)
    runs(c, "firm", "c1b", 1, start=1, preemptible=False).gang("g", pods=1, gpus=1, queue="c2")
    court = Court(c)
    assert court.may_claim("g")
    assert not court.may_lose("g", "v")
    assert not court.may_lose("g", "firm")


def test_siblings_that_deserve_nothing_divide_what_their_parent_does(given):
    """One runs its half, the other waits for its own: nothing is taken (50)."""
    c = given.nodes(1, gpus=2).queue("p", limits=deserves(4)).queue("qa", parent="p")
    c.queue("qb", parent="p")
    runs(c, "v", "qb", 2).gang("g", pods=1, gpus=2, queue="qa")
    assert not Court(c).may_lose("g", "v")


def test_a_leaf_claims_what_its_parent_deserves(given):
    """And a queue that deserves nothing gives it at once, but no more (51)."""
    c = given.nodes(1, gpus=4).queue("q1", limits=deserves(1)).queue("q11", parent="q1")
    c.queue("q2")
    for number in range(4):
        runs(c, f"v{number}", "q2", 1, start=number)
    c.gang("g", pods=1, gpus=1, queue="q11").gang("more", pods=1, gpus=4, queue="q11")
    court = Court(c)
    assert court.may_go("g", "v0")
    assert not court.may_claim("more")


def test_accelerators_decide_alone(given):
    """A queue that borrows CPU may claim its GPU; only who is over in GPUs gives one (52)."""
    limits = {"deserved": {GPU: 2, "cpu": 1000}}
    c = given.nodes(1, gpus=4, cpu=4000).queue("q1", limits=limits).queue("q2", limits=limits)
    c.gang("hog", pods=1, queue="q1").pod("hog-0", group="hog", cpu=2000, node="node-0", plan="p")
    runs(c, "v", "q2", 2)
    runs(c, "w", "q2", 2, start=2).gang("g", pods=1, gpus=2, cpu=500, queue="q1")
    court = Court(c)
    assert court.may_go("g", "v")
    assert not court.may_go("g", "v", "w")


def test_who_is_taken_whole_may_end_below_his_share(given):
    """A gang is judged before it goes; submitted again it cannot take the room back (53)."""
    c = given.nodes(1, gpus=5).queue("q1", limits=deserves(3)).queue("q2", limits=deserves(5))
    runs(c, "v", "q1", 4)
    runs(c, "own", "q2", 1, start=4).gang("g", pods=1, gpus=4, queue="q2")
    assert Court(c).may_go("g", "v")


@pytest.mark.parametrize(
    ("victim", "queue"), [({"preemptible": False}, {}), ({}, {"reclaimable": False})]
)
def test_what_is_not_for_others_to_take(given, victim, queue):
    """Gangs that are not preemptible, and queues that are not reclaimable."""
    c = given.nodes(1, gpus=4).queue("q1", limits=deserves(2))
    c.queue("q2", limits=deserves(2), **queue)
    runs(c, "v", "q2", 4, **victim).gang("g", pods=1, gpus=2, queue="q1")
    assert not Court(c).may_lose("g", "v")


def test_one_queue_does_not_reclaim_from_itself(given):
    """That is for preempt, about which shares have nothing to say."""
    c = given.nodes(1, gpus=4).queue("q1", limits=deserves(2))
    runs(c, "v", "q1", 4).gang("g", pods=1, gpus=2, queue="q1")
    court = Court(c)
    assert not court.may_lose("g", "v")
    assert court.may_lose("g", "v", PREEMPT)


def test_a_guarantee_is_never_touched(given):
    """Not even by a chunk that is judged before it goes."""
    c = given.nodes(1, gpus=4).queue("q1", limits=deserves(2))
    c.queue("q2", limits=deserves(2, guarantee=2))
    runs(c, "v", "q2", 4).gang("g", pods=1, gpus=2, queue="q1")
    assert "is guaranteed 2" in Court(c).verdict("g", "v").message


def test_firm_claims_stay_within_what_is_deserved(given):
    """What could never be taken back is not claimed by fair share alone."""
    c = given.nodes(1, gpus=4).queue("q1").queue("q2")
    runs(c, "v", "q2", 1, pods=4, min_member=1)
    c.gang("soft", pods=1, gpus=2, queue="q1").gang("firm", pods=1, gpus=2, queue="q1")
    c.group("firm", queue="q1", preemptible=False)
    court = Court(c)
    assert court.may_claim("soft")
    assert not court.may_claim("firm")


def test_the_least_deserving_gives_first(given):
    """Lower queue priority first, then who is further over."""
    c = given.nodes(1, gpus=8).queue("q1", limits=deserves(2))
    c.queue("low", priority=-1, limits=deserves(1)).queue("far", limits=deserves(1))
    c.queue("near", limits=deserves(1))
    runs(c, "l", "low", 2)
    runs(c, "f", "far", 4, start=2)
    runs(c, "n", "near", 2, start=6).gang("g", pods=1, gpus=2, queue="q1")
    assert Court(c).order("g", "n", "f", "l") == ["l", "f", "n"]


def test_memory_that_nobody_speaks_of_is_no_loan(given):
    """Who says what GPUs he deserves and nothing of memory keeps the memory that he uses."""
    c = given.nodes(1, gpus=2, cpu=8000, memory=100).queue("q2", limits=deserves(0), weight=0)
    c.queue("q1", limits=deserves(2)).queue("q0", limits={"deserved": {GPU: 0, "memory": 0}})
    c.gang("v", pods=1, queue="q2").pod(
        "v-0", group="v", cpu=10, memory=50, node="node-0", plan="p"
    )
    c.gang("w", pods=1, queue="q0").pod(
        "w-0", group="w", cpu=10, memory=50, node="node-0", plan="p"
    )
    c.gang("g", pods=1, cpu=10, memory=50, queue="q1")
    court = Court(c)
    assert court.may_claim("g")
    assert not court.may_lose("g", "v")
    assert court.may_lose("g", "w")


def test_extras_go_one_by_one_and_the_rest_as_a_whole(given):
    """Of three members two are needed: the third is one step, the two another."""
    c = given.nodes(1, gpus=3).queue("a", limits=deserves(2)).queue("b", limits=deserves(2))
    runs(c, "v", "b", 1, pods=3, min_member=2).gang("g", pods=1, gpus=1, queue="a")
    c.gang("large", pods=1, gpus=2, queue="a")
    court = Court(c)
    assert steps(court, court.gang("v")) == [1, 2]
    group = attrs.evolve(court.gang("v").terms, disruption="Group")
    assert steps(court, attrs.evolve(court.gang("v"), terms=group)) == [3]
    gang, session = court.gang("v"), court.session
    claim = session.statement()
    session.evict(claim, gang, gang.placed[2])
    assert steps(court, gang, without=claim.evictions) == [2]


@pytest.mark.parametrize(("needed", "expected"), [(2, [1, 1, 2]), (4, [4])])
def test_what_a_sub_group_needs_goes_as_a_whole(given, needed, expected):
    """Four members of which one is needed, and so many of their sub-group: they run with those or not at all."""
    c = given.nodes(1, gpus=4).queue("a", limits=deserves(3)).queue("b", limits=deserves(1))
    parts = [SubGroup("part", needed, TopologyRequest())]
    runs(c, "v", "b", 1, pods=4, min_member=1, sub_groups=parts, min_sub_groups=1, part="part")
    c.gang("g", pods=3, gpus=1, queue="a")
    court = Court(c)
    assert steps(court, court.gang("v")) == expected
    plan = c.when.carried_out()
    assert [claim.gang.name for claim in plan.preemptions] == ["g"]


def steps(court, gang, *, without=()):
    """GPUs of the steps in which a gang ends, after some evictions that were claimed."""
    victims = Victims(court.session, only=gang)
    victims.claimed(without)
    running = victims.running(gang)
    chunks = eviction_chunks(VictimGroup(gang, running.seats), running)
    return [chunk.released.get(GPU) // DEVICE for chunk in chunks]


def test_a_department_that_would_be_more_saturated_takes_nothing(given):
    """Its team may claim what it deserves; the department would end further above its share."""
    c = given.nodes(4, gpus=8).queue("mine").queue("theirs")
    c.queue("team", parent="mine", limits=deserves(8)).queue("others", parent="mine")
    c.queue("sibling", parent="theirs")
    for number in range(2):
        runs(c, f"kept-{number}", "others", 8, on=f"node-{number}", preemptible=False)
        runs(c, f"loses-{number}", "sibling", 8, on=f"node-{number + 2}")
    c.gang("new", pods=1, gpus=8, queue="team", created=NOW)
    c.when.one_session()
    assert c.then.evicted() == []
