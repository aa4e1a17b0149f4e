"""The watch of a scenario sees devices that are given twice, too late, or kept for nothing."""

from __future__ import annotations

from gpusched.lab.scenario.play.invariants import LEAK_S
from tests.lab.scenario.test_watch_planted import Obj, Story, node, pod


def claim(name: str, device: str = "", *, user: str = "") -> Obj:
    """A claim, with a device of the node where one is named."""
    result = {"request": "r", "driver": "d.example.com", "pool": "n0", "device": device}
    status: Obj = {"allocation": {"devices": {"results": [result]}}} if device else {}
    if user:
        status["reservedFor"] = [{"resource": "pods", "name": user, "uid": f"uid-{user}"}]
    meta = {"name": name, "namespace": "default", "uid": f"uid-claim-{name}"}
    return {"kind": "ResourceClaim", "metadata": meta, "spec": {}, "status": status}


def claimant(name: str, *, slots: tuple[int, ...] = (), phase: str = "Running") -> Obj:
    """A bound pod that names the claim ``NAME-c``, told of slots."""
    made = pod(name, slots, gpus=0, phase=phase)
    made["spec"]["resourceClaims"] = [{"name": "c", "resourceClaimName": f"{name}-c"}]
    return made


def test_all_is_well_where_a_pod_is_bound_after_its_claim_has_its_device() -> None:
    story = Story().tell(1, node(), claim("a-c", "gpu-0", user="a"), claimant("a"))
    assert story.look(2 * LEAK_S).broken == []


def test_a_device_that_two_claims_have() -> None:
    story = Story().tell(1, node(), claim("a-c", "gpu-0", user="a"), claim("b-c", "gpu-0"))
    assert story.broken == ["devices"]
    assert "gpu-0 is given 2 times" in story.watch.broken[0].sentence


def test_a_pod_that_is_bound_before_its_claim_has_a_device() -> None:
    story = Story().tell(1, node(), claim("a-c"), claimant("a"))
    assert story.broken == ["devices"]
    assert "whose claim default/a-c has no devices" in story.watch.broken[0].sentence


def test_devices_that_no_pod_has_made_use_of_for_long() -> None:
    story = Story().tell(1, node(), claim("a-c", "gpu-0", user="a"))
    assert story.look(LEAK_S / 2).broken == []
    for at in range(0, int(2 * LEAK_S), 30):
        story.look(LEAK_S / 2 + at)
    assert story.broken == ["claims"]


def test_slots_that_are_told_of_a_shared_claim_are_not_given_twice() -> None:
    shared = claim("a-c", "gpu-0", user="a")
    shared["status"]["reservedFor"].append({"resource": "pods", "name": "b", "uid": "uid-b"})
    second = claimant("b", slots=(0,))
    second["spec"]["resourceClaims"][0]["resourceClaimName"] = "a-c"
    story = Story().tell(1, node(), shared, claimant("a", slots=(0,)), second)
    assert story.broken == []


def test_claims_that_are_not_followed_prove_nothing() -> None:
    assert Story().tell(1, node(), claimant("a")).broken == []
