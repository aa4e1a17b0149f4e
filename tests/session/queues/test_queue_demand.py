"""What there is to divide and who asks for it, as a session finds it."""

from __future__ import annotations

from gpusched.api.meta.units import DEVICE
from gpusched.session.state.session import Session
from gpusched.testing.entities import GPU, NOW


def view(c):
    """The view of a session on the cluster."""
    snapshot = c.cache.take_snapshot(c.now)
    return Session(
        snapshot,
        c.policy.plugins,
        c.policy.capabilities,
        guard=c.guard,
        session_cache=c.session_cache,
        placement=c.placement,
    ).view


def held(c, gang, node, gpus=4, **about):
    """A pod of a gang that has its place."""
    about = {"group": gang, "plan": "p", "scheduled": NOW, **about}
    return c.pod(f"{gang}-at-{node}", gpus=gpus, node=node, slots=2**gpus - 1, **about)


def test_what_is_divided(given):
    """Ready, uncordoned nodes without what others' pods hold there; our own use counts in."""
    c = given.nodes(2, gpus=8).node("cordoned", gpus=8, unschedulable=True)
    c.node("down", gpus=8, not_ready="NodeStatusUnknown").gang("g", pods=1)
    held(c, "g", "node-0")
    c.pod("alien", scheduler="default-scheduler", gpus=3, node="node-1")
    c.pod("alien-2", scheduler="default-scheduler", gpus=3, node="down")
    assert view(c).total().get(GPU) == 13 * DEVICE
    assert view(c).capacity().get(GPU) == 32 * DEVICE


def test_what_is_asked_for(given):
    """Held and waited for, up the tree; who leaves and who cannot start asks for nothing."""
    c = given.nodes(4, gpus=8).queue("p").queue("a", parent="p").queue("b", parent="p")
    c.queue("shut", parent="p", stop_policy="Hold")
    c.gang("g", pods=3, gpus=2, queue="a").gang("h", pods=1, gpus=1, queue="b")
    c.gang("kept-out", pods=1, gpus=8, queue="shut").gang("lost", pods=1, gpus=8, queue="p")
    held(c, "g", "node-0")
    held(c, "h", "node-1", deleting=True)
    seen = view(c)
    assert {q: seen.requested(q).get(GPU) // DEVICE for q in ("a", "b", "shut", "p")} == {
        "a": 4 + 6, "b": 1, "shut": 0, "p": 11,
    }  # fmt: skip
    assert seen.staying("b").get(GPU) == 0
    assert seen.allocated("b").get(GPU) == 4 * DEVICE


def test_what_nobody_may_take_back(given):
    """Use of gangs that are not preemptible, up the tree, with what they were given just now."""
    c = given.nodes(2, gpus=8).queue("p").queue("a", parent="p")
    c.gang("g", pods=1, gpus=2, queue="a").gang("soft", pods=1, gpus=1, queue="a")
    c.group("g", queue="a", preemptible=False)
    held(c, "g", "node-0")
    held(c, "soft", "node-1")
    seen = view(c)
    assert (seen.not_preemptible("a").get(GPU), seen.not_preemptible("p").get(GPU)) == (
        4 * DEVICE,
        4 * DEVICE,
    )
