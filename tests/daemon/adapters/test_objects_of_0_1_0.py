"""An upgrade from 0.1.0: what that version wrote is taken up as it stands, docs/upgrade.md.

Its bindings have slots, plan, fence, proof and rank, and no seal; its Lease has no key.
"""

from __future__ import annotations

import pytest

FENCE = "gpusched-6f7c5d_0b1e_285d7beab9/7"


def bind_as_0_1_0(w, name, node, slots, *, plan="4113a14d7b2e", rank="0"):
    """A binding with the annotations that 0.1.0 sent, recorded from one."""
    told = {
        "gpusched.io/fence": FENCE,
        "gpusched.io/plan": plan,
        "gpusched.io/proof": "optimal",
        "gpusched.io/rank": rank,
        "gpusched.io/slots": slots,
    }
    w.client.bind("default", name, node, annotations=told)


def lease_of_0_1_0(w):
    """Left by a leader that was killed."""
    w.client.create(
        "leases.coordination.k8s.io",
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "gpusched"},
            "spec": {
                "holderIdentity": FENCE.partition("/")[0],
                "leaseDurationSeconds": 15,
                "leaseTransitions": 7,
                "renewTime": "2026-01-01T00:00:00.000000Z",
            },
        },
        "gpusched-system",
    )


def slots(pods):
    """Node and number of every slot that is held."""
    return [
        (pod["spec"]["nodeName"], slot)
        for pod in pods
        for slot in pod["metadata"]["annotations"]["gpusched.io/slots"].split(",")
    ]


@pytest.mark.parametrize("halves", [1, 3])
def test_gangs_that_run_wait_and_are_half_bound(play, halves):
    """Who runs stays, who is bound in part is completed beside the rest, who waits goes on."""

    async def scenario(w):
        await w.start(nodes=2)
        w.check_journal = False
        if w.client.get("namespaces", None, "gpusched-system") is None:
            place = {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": "gpusched-system"},
            }
            w.client.create("namespaces", place)
        lease_of_0_1_0(w)
        w.gang("runs", 2, gpus=2)
        w.gang("half", 4, gpus=1)
        w.gang("waits", 2)
        await w.until(lambda: len(w.pods()) == 8)
        for number, pod in enumerate(w.pods("runs")):
            bind_as_0_1_0(w, pod["metadata"]["name"], "node-0", ("0,1", "4,5")[number])
        for number, pod in enumerate(w.pods("half")[:halves]):
            name = pod["metadata"]["name"]
            bind_as_0_1_0(w, name, "node-0", ("2", "3", "6")[number], plan="2659677b5870")
        await w.until(lambda: len(w.running()) == 2 + halves)
        before = {p["metadata"]["uid"]: p["metadata"]["annotations"] for p in w.bound()}
        daemon = w.daemon()
        await w.until(lambda: daemon.leading, within=40)
        await w.until(lambda: len(w.running("half")) == 4, within=120)
        held = slots(w.bound())
        assert len(held) == len(set(held)) == 2 * 2 + 4
        after = {p["metadata"]["uid"]: p["metadata"]["annotations"] for p in w.bound()}
        assert before.items() <= after.items()
        assert w.condition("half")["status"] == "True"
        assert w.condition("waits")["status"] == "False"
        w.client.delete("jobs.batch", "default", "runs", propagation="Background")
        w.client.delete("jobs.batch", "default", "half", propagation="Background")
        await w.until(lambda: len(w.running("waits")) == 2, within=120)
        held = slots(w.bound("waits"))
        assert len(held) == len(set(held)) == 16

    play(scenario)
