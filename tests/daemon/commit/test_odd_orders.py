"""Things seen in an odd order, and gangs found half bound: rows 6 and 18 of docs/faults.md."""

from __future__ import annotations

import pytest

CLASSES = "priorityclasses.scheduling.k8s.io"
BOUND = {"gpusched.io/plan": "p", "gpusched.io/fence": "before/0"}


def bind(w, name, node):
    """Bind a pod as a daemon that died since would have."""
    w.client.bind("default", name, node)
    notes = {**BOUND, "gpusched.io/slots": "0,1,2,3,4,5,6,7"}
    w.client.patch("pods", "default", name, {"metadata": {"annotations": notes}})


def priority(w, name, value):
    """Make a PriorityClass."""
    w.client.create(
        CLASSES,
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
        },
    )


def members(w, gang, count, **group):
    """A PodGroup and its lone pods."""
    w.group(gang, minMember=count, **group)
    for number in range(count):
        w.pod(f"{gang}-{number}", labels={"gpusched.io/pod-group": gang})


# -- row 6 -------------------------------------------------------------------------------------
def test_pods_come_before_their_pod_group(play):
    """Given members whose PodGroup is not there, they wait with a reason, and start when it comes."""

    async def scenario(w):
        await w.start(nodes=2)
        w.daemon()
        for number in range(2):
            w.pod(f"early-{number}", labels={"gpusched.io/pod-group": "early"})
        await w.until(lambda: all(w.told(f"early-{n}").get("message") for n in range(2)))
        assert w.told("early-0")["reason"] == "InvalidSpec"
        assert "does not exist; create it" in w.told("early-0")["message"]
        assert w.bound() == []
        w.group("early", minMember=2)
        await w.until(lambda: len(w.running("early")) == 2)

    play(scenario)


@pytest.mark.parametrize("before", [True, False])
def test_a_pod_is_bound_to_a_node_that_is_not_there_yet(play, before):
    """Given a pod on a node that nobody has seen, when it comes its GPUs are taken already."""

    async def scenario(w):
        await w.start(nodes=0)
        if not before:
            w.daemon()
            await w.until(lambda: w.daemons[0].leading)
        w.pod("first", gpus=6, spec={"nodeName": "late"})
        if before:
            w.daemon()
            await w.until(lambda: w.daemons[0].leading)
        w.pod("second", gpus=4)
        await w.until(lambda: w.told("second").get("message"))
        w.node("late")
        await w.clock.sleep(10)
        assert [pod["metadata"]["name"] for pod in w.bound()] == ["first"]
        assert w.told("second")["reason"] == "Unschedulable"
        w.pod("third", gpus=2)
        await w.until(lambda: len(w.bound()) == 2)
        assert not w.client.get("pods", "default", "second")["spec"].get("nodeName")

    play(scenario)


# -- row 18 ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("first", "second", "held", "wins"),
    [
        ("high", "", (1, 2), "a"),
        ("", "high", (2, 1), "b"),
        ("", "", (1, 2), "b"),
        ("", "", (2, 1), "a"),
        ("", "", (2, 2), "a"),
    ],
)
def test_of_two_gangs_bound_in_part_one_is_undone_for_the_other(play, first, second, held, wins):
    """Given two gangs that hold each other's rest, the lower priority, then lesser progress, goes."""

    async def scenario(w):
        await w.start(nodes=sum(held))
        priority(w, "high", 1000)
        named = {"a": first, "b": second}
        for gang, count in zip("ab", held, strict=True):
            members(w, gang, 3, **({"priorityClassName": named[gang]} if named[gang] else {}))
            for number in range(count):
                bind(w, f"{gang}-{number}", f"node-{number + (gang == 'b') * held[0]}")
        began = w.clock.monotonic()
        w.daemon()
        loser = "ab".replace(wins, "")
        await w.until(lambda: not w.bound(loser), within=119)
        await w.until(lambda: len(w.bound(wins)) == 3, within=119 - w.clock.monotonic() + began)

    play(scenario)


def test_a_gang_bound_in_part_that_a_budget_protects_is_told_so(play):
    """It cannot be taken back: the condition and its pods name the budget and say what helps."""

    async def scenario(w):
        await w.start(nodes=1)
        members(w, "a", 2)
        bind(w, "a-0", "node-0")
        budget = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "keep", "namespace": "default"},
            "spec": {
                "minAvailable": 1,
                "selector": {"matchLabels": {"gpusched.io/pod-group": "a"}},
            },
        }
        w.client.create("poddisruptionbudgets.policy", budget)
        w.daemon()
        await w.until(lambda: "cannot be taken back" in w.condition("a").get("message", ""), 180)
        message = w.condition("a")["message"]
        assert w.condition("a")["status"] == "False"
        assert "1 of its pods that are bound cannot be taken back (default/a-0:" in message
        assert "The disruption budget keep needs 1 healthy pods and has 1 currently" in message
        assert "make the budget allow a disruption, or delete the pod" in message
        await w.until(lambda: w.told("a-1").get("message") == message)
        w.client.delete("poddisruptionbudgets.policy", "default", "keep")
        await w.until(lambda: not w.bound("a"), within=120)
        await w.until(lambda: "taken back" not in w.condition("a")["message"], within=120)

    play(scenario)


def test_many_gangs_bound_in_part_leave_one_after_the_other(play):
    """Given four gangs of two with one member each, all are whole or undone within the time."""

    async def scenario(w):
        await w.start(nodes=4)
        for number in range(4):
            members(w, f"g{number}", 2)
            bind(w, f"g{number}-0", f"node-{number}")
        w.daemon()
        await w.until(lambda: len(w.bound("g0")) == 2, within=119)
        await w.clock.sleep(30)
        assert [len(w.bound(f"g{number}")) for number in range(4)] == [2, 0, 0, 0]

    play(scenario)
