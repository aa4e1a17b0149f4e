"""Roles with rules about each other have no proof: nothing claims that their places are the best."""

from __future__ import annotations

import random

import pytest

from gpusched.api.affinity.pod_terms import PodTerm, SpreadTerm
from gpusched.api.affinity.selector import Requirement, Selector
from gpusched.testing.given import Given

HOST = "kubernetes.io/hostname"
RACK = "gpusched.io/rack"


def about(role: str) -> Selector:
    """Selects the pods of a role."""
    return Selector((Requirement("role", "In", (role,)),))


def term(role: str, key: str) -> PodTerm:
    """About pods of a role in one domain."""
    return PodTerm(topology_key=key, selector=about(role))


def spread(role: str, key: str) -> SpreadTerm:
    """Evenly over domains, counted by pods of a role."""
    return SpreadTerm(topology_key=key, max_skew=1, selector=about(role))


RULES = {
    "workers avoid launchers": {"worker": {"pod_anti_affinity": [term("launcher", HOST)]}},
    "launchers avoid workers": {"launcher": {"pod_anti_affinity": [term("worker", HOST)]}},
    "each avoids the other": {
        "worker": {"pod_anti_affinity": [term("launcher", HOST)]},
        "launcher": {"pod_anti_affinity": [term("worker", HOST)]},
    },
    "workers go where launchers are": {"worker": {"pod_affinity": [term("launcher", RACK)]}},
    "workers spread by launchers": {"worker": {"spread": [spread("launcher", RACK)]}},
    "alone among themselves, and away from the others": {
        "worker": {"pod_anti_affinity": [term("worker", HOST), term("launcher", RACK)]},
    },
}


def cluster(rng: random.Random) -> Given:
    """Racks of a few nodes."""
    c = Given()
    for rack in range(rng.randint(2, 3)):
        for number in range(rng.randint(1, 3)):
            name = f"n{rack}{number}"
            c.node(name, gpus=rng.choice((2, 4, 8)), labels={RACK: f"r{rack}", HOST: name})
    return c


def submit(c: Given, rng: random.Random, rules: dict[str, dict[str, object]]) -> None:
    """A gang of launchers and workers, with these rules of each role."""
    sizes = {"launcher": rng.randint(1, 2), "worker": rng.randint(1, 4)}
    least = dict(sizes)
    if rng.random() < 0.5:
        least["worker"] = 1
    c.group("g", min_member=sum(least.values()), roles=least)
    for role, count in sizes.items():
        for number in range(count):
            c.pod(
                f"{role}-{number}", group="g", role=role, gpus=1 + (role == "launcher"),
                labels={"role": role}, **rules.get(role, {}),
            )  # fmt: skip


@pytest.mark.parametrize("name", RULES)
def test_nothing_is_claimed_of_roles_with_rules_about_each_other(name):
    """Twenty clusters each: whatever is placed, no pod and no condition says that it is proven."""
    started = 0
    for seed in range(20):
        rng = random.Random(f"{name}-{seed}")
        c = cluster(rng)
        submit(c, rng, RULES[name])
        plan = c.when.one_session()
        started += len(plan.binds)
        assert [bind.proof for bind in plan.binds if bind.proof] == [], (name, seed)
    assert started >= 5, "gangs that never start would show nothing"


def test_the_same_gangs_are_proven_without_rules():
    """So it is the rules that take the proof away, and the test above can fail."""
    rng = random.Random(1)
    c = cluster(rng)
    submit(c, rng, {})
    (bind,) = c.when.one_session().binds
    assert bind.proof == "optimal"
