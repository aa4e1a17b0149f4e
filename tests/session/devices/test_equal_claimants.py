"""What is known of equal gangs with claims, and of earlier sessions, changes no decision and no sentence."""

from __future__ import annotations

import random

import attrs
import pytest

from gpusched.api.devices.dynamic.claims import ClaimConsumer, PodClaim
from gpusched.api.meta.identity import ObjectKey
from gpusched.cache.claimable.device_stores import AssumedClaim
from gpusched.devices.shortage import causes
from gpusched.session.state.nodes.devices import device_report
from gpusched.testing.given import Given
from tests.populations import one_of
from tests.session.devices.conftest import ROOT, Devices, exactly, gpu, nic
from tests.session.state.test_alike_gangs import decided_afresh, stripped


class Claimants:
    """A small cluster of GPUs and NICs on which gangs of few kinds wait, start and end."""

    def __init__(self, seed):
        self.rng = rng = random.Random(seed)
        self.given = Given().nodes(rng.randint(2, 4), gpus=0)
        self.devices = Devices(self.given)
        self.devices.a_class("gpu", 'device.driver == "gpu.example.com"')
        self.devices.a_class("nic", 'device.driver == "nic.example.com"')
        for row in range(rng.randint(1, 4)):
            count = rng.choice([2, 4])
            self.devices.on_node(f"node-{row}", [gpu(number) for number in range(count)])
            self.devices.on_node(
                f"node-{row}",
                [nic(number) for number in range(count // 2)],
                driver="nic.example.com",
            )
        rule = {"requests": ["g", "n"], "matchAttribute": ROOT}
        self.devices.template("one", exactly("r", "gpu"))
        self.devices.template("pair", exactly("g", "gpu"), exactly("n", "nic"), constraints=[rule])
        self.devices.template("many", exactly("r", "gpu", 5))
        self.made = 0

    def arrive(self):
        """One gang more, of some kind; the claim controller may have missed one of its pods."""
        rng, name = self.rng, f"g{self.made:03}"
        self.made += 1
        pods, template = rng.choice([1, 2]), rng.choice(["one", "pair", "many"])
        created = self.given.now - rng.randint(0, 50)
        self.given.group(name, min_member=pods, created=created)
        for number in range(pods):
            self.devices.pod(
                f"{name}-{number}", group=name, template=template, rank=number,
                made=rng.random() < 0.9, created=created,
            )  # fmt: skip
        if rng.random() < 0.15:  # left over from an attempt that failed
            self.assume(f"{name}-0-claim", self.allocation())

    def allocation(self):
        """What some claim has."""
        held = [
            each.allocation
            for each in self.given.snapshot.devices.claims.values()
            if each.allocation is not None
        ] if self.given.snapshot is not None else []  # fmt: skip
        return self.rng.choice(held) if held else None

    def assume(self, name, allocation, pod=None):
        """A claim gets devices, for a pod where one is named."""
        key = ObjectKey("default", name)
        claim = self.given.cache.devices.claims.items.get(key)
        if claim is None or allocation is None:
            return
        users = (
            ()
            if pod is None
            else (ClaimConsumer(group="", resource="pods", name=pod.key.name, uid=pod.uid),)
        )
        self.given.cache.devices.assume_claim(key, AssumedClaim(claim.uid, allocation, users))

    def go_on(self, plan):
        """What was decided is carried out, some end, some come."""
        for gang in plan.binds:
            for bind in gang.binds:
                for claim in bind.claims:
                    self.assume(claim.key.name, claim.allocation, bind)
        self.given.when.carried_out()
        self.given.now += self.rng.choice([0, 1, 30])
        for pod in sorted(self.given.cache.pods.values(), key=lambda pod: pod.key):
            if pod.node and self.rng.random() < 0.3:
                self.given.gone(pod.name)
                self.devices.ends(pod.name)
        for _ in range(self.rng.randint(0, 3)):
            self.arrive()


@pytest.mark.long
@pytest.mark.parametrize("seed", one_of(4, range(40)))
def test_a_session_with_memory_decides_as_one_without(seed):
    world = Claimants(seed)
    for _ in range(world.rng.randint(4, 12)):
        world.arrive()
    for _ in range(4):
        plan = world.given.when.one_session()
        afresh = decided_afresh(world.given.snapshot, world.given.policy)
        assert stripped(plan) == stripped(afresh)
        world.go_on(plan)


@pytest.fixture
def described(monkeypatch):
    """Names of the requests whose devices were counted for a sentence."""
    asked = []

    def describe(*args, **named):
        asked.append(args[4].name)
        return causes.describe_request(*args, **named)

    monkeypatch.setattr(device_report, "describe_request", describe)
    return asked


def test_of_many_equal_gangs_one_is_looked_at(given, devices, described):
    given.nodes(2)
    devices.on_node("node-0", [gpu(0), gpu(1)])
    devices.template("three", exactly("r", "gpu", 3))
    for number in range(20):
        devices.gang(f"g{number:02}", 2, template="three")
    given.when.one_session()
    assert described == ["r"]
    assert len({given.then.why(f"g{number:02}") for number in range(20)}) == 1
    given.when.one_session()
    assert described == ["r"], "nothing has changed since"


def test_a_gang_whose_claim_is_not_made_is_told_so_beside_its_equals(given, devices):
    given.nodes(1)
    devices.on_node("node-0", [gpu(0)])
    devices.template("two", exactly("r", "gpu", 2))
    devices.gang("a", 1, template="two")
    given.group("b", min_member=1)
    devices.pod("b-0", group="b", template="two", made=False)
    given.when.one_session()
    assert "1 devices match" in given.then.why("a") or "1 device matches" in given.then.why("a")
    assert "waits for its claim c to be made" in given.then.why("b")


def test_pods_that_name_one_claim_are_no_equal_gangs(given, devices):
    given.nodes(1)
    devices.on_node("node-0", [gpu(0)])
    devices.template("one", exactly("r", "gpu"))
    devices.gang("a", 1, template="one").gang("b", 1, template="one")
    classes = given.session_cache.equivalence
    first, second = given.cache.take_snapshot(given.now).gangs
    assert classes.class_of(first) is classes.class_of(second) is not None
    named = attrs.evolve(first.pod_sets[0].pod_class, claims=(PodClaim(name="c", claim="shared"),))
    pod_set = attrs.evolve(first.pod_sets[0], pod_class=named)
    assert classes.class_of(attrs.evolve(first, pod_sets=(pod_set,))) is None
