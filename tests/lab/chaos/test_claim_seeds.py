"""Seeds with claims for devices: what they draw, and that claims are really given devices in them."""

from __future__ import annotations

import logging
from collections import Counter

import pytest

from gpusched.lab.chaos.play import play_script
from gpusched.lab.chaos.scripts.claims import EVERY
from gpusched.lab.chaos.scripts.generator import draw_script
from gpusched.lab.chaos.steps.device_objects import CLAIMED
from gpusched.lab.chaos.steps.objects import CLAIMS

SEEDS = range(2, 200, EVERY)


@pytest.fixture(autouse=True)
def silent():
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def roles(script):
    """Roles of gangs whose pods claim devices."""
    return [
        role
        for step in script.steps
        if step.do == "gang"
        for role in step.args["roles"]
        if role.get("claim") or role.get("named")
    ]


def faults(script):
    """What befalls writes and watches of claims."""
    for step in script.steps:
        if step.do == "fault" and str(step.args.get("resource", "")).startswith("resourceclaims"):
            fault = step.args["fault"]
            yield fault["type"], fault.get("code", fault.get("applied"))
        elif step.do == "events" and step.args["kind"] == "resourceclaims":
            yield "events", step.args["how"]


def test_seeds_draw_every_way_to_claim_and_every_fault_of_claims():
    claimed, named, found, generations = set(), Counter(), set(), 0
    for seed in SEEDS:
        script = draw_script(seed)
        claimed |= {role["claim"] for role in roles(script) if "claim" in role}
        named.update((seed, role["named"]) for role in roles(script) if "named" in role)
        found |= set(faults(script))
        generations += sum(step.do == "cards" for step in script.steps)
    assert claimed == set(CLAIMED)
    assert max(named.values()) > 1  # shared by gangs
    assert min(named.values()) == 1
    assert found == {
        ("status", 409), ("status", 422), ("status", 500), ("lost", True), ("lost", False),
        ("delay", None), ("events", "lag"), ("events", "replay"),
    }  # fmt: skip
    assert generations > len(SEEDS)


def test_other_seeds_have_none():
    for seed in range(40):
        if seed % EVERY != 2:
            assert not roles(draw_script(seed))


def test_claims_are_given_devices_in_such_a_run():
    given = set()

    def ready(cluster, _):
        def see(kind, change):
            if kind == CLAIMS and (change.after.obj.get("status") or {}).get("allocation"):
                given.add(change.key)

        cluster.core.store.observers.append(see)

    run = play_script(draw_script(22), ready=ready)
    assert [str(each) for each in run.seen] == []
    assert len(given) >= 5


def test_devices_that_come_to_light_while_others_are_given_do_not_hold_their_pod_up():
    # given: a dead leader's devices of a pod's own claim, seen when the next one has decided for others
    run = play_script(draw_script(178))
    # then: they are taken back, and a daemon that comes last has nothing to write
    assert [str(each) for each in run.seen] == []
