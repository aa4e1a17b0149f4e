"""Racks that change under a gang that waits, is being bound, or runs: replanned, never wrong."""

from __future__ import annotations

import pytest

RACK = "gpusched.io/rack"


async def racks(world, *sizes):
    """A cluster of racks ``r0`` and on with so many nodes of eight GPUs each."""
    await world.start(nodes=0)
    for rack, size in enumerate(sizes):
        for number in range(size):
            world.node(f"r{rack}-n{number}", **{RACK: f"r{rack}"})


def relabel(world, node, **labels):
    """Change labels of a node; None takes one away."""
    world.client.patch("nodes", None, node, {"metadata": {"labels": labels}})


def rack_of(world, node):
    return world.client.get("nodes", None, node)["metadata"]["labels"].get(RACK)


def gang(world, name, count, **topology):
    world.group(name, minMember=count, topology=topology)
    world.job(name, count, group=name)


def staying(world, name):
    """Bound members that are not leaving."""
    return [p for p in world.bound(name) if not p["metadata"].get("deletionTimestamp")]


def where(world, name):
    """Racks of the nodes that members are bound to, those that are gone as None."""
    there = world.names("nodes")
    return {
        rack_of(world, pod["spec"]["nodeName"]) if pod["spec"]["nodeName"] in there else None
        for pod in staying(world, name)
    }


def test_a_node_that_is_put_into_a_rack_completes_it(play):
    """The gang waited with the numbers of its best rack, and starts when the label comes."""

    async def scenario(world):
        await racks(world, 2, 2, 1)
        world.daemon()
        gang(world, "g", 3, required="rack")
        await world.until(lambda: world.condition("g").get("reason") == "TopologyUnsatisfiable")
        relabel(world, "r2-n0", **{RACK: "r1"})
        await world.until(lambda: len(world.running("g")) == 3)
        assert where(world, "g") == {"r1"}

    play(scenario)


def test_a_node_that_loses_its_label_leaves_its_rack(play):
    """Free as it is, a gang that requires a rack does not get it; one that does not, does."""

    async def scenario(world):
        await racks(world, 3)
        relabel(world, "r0-n2", **{RACK: None})
        world.daemon()
        gang(world, "g", 3, required="rack")
        await world.until(lambda: world.condition("g").get("reason") == "TopologyUnsatisfiable")
        assert not world.bound("g")
        gang(world, "any", 3)
        await world.until(lambda: len(world.running("any")) == 3)

    play(scenario)


def test_a_rack_that_vanishes_while_a_gang_waits_for_it_is_forgotten(play):
    """The next best rack is taken when it gets room."""

    async def scenario(world):
        await racks(world, 3, 3)
        world.job("old", 6)
        world.daemon()
        await world.until(lambda: len(world.running("")) == 6)
        gang(world, "g", 3, required="rack")
        await world.until(lambda: world.condition("g").get("status") == "False")
        for number in range(3):
            world.client.delete("nodes", None, f"r0-n{number}")
        world.client.delete("jobs.batch", "default", "old")
        for pod in world.pods():
            if pod["metadata"]["name"].startswith("old"):
                world.client.delete("pods", "default", pod["metadata"]["name"])
        await world.until(lambda: len(world.running("g")) == 3)
        assert where(world, "g") == {"r1"}

    play(scenario)


@pytest.mark.parametrize("after", [1, 2, 3])
def test_a_rack_that_vanishes_between_decision_and_binding(play, after):
    """Its gang is planned anew as a whole: in the end all members run in a rack that is there."""

    async def scenario(world):
        await racks(world, 4, 6)
        daemon = world.daemon()
        lost = []

        def vanish(method, path):
            """When so many bindings were sent, the rack they go to is unplugged."""
            if path.endswith("/binding"):
                seen.append(path)
                if len(seen) == after and not lost:
                    lost.append(path)
                    for number in range(4):
                        world.client.delete("nodes", None, f"r0-n{number}")
            return ""

        seen: list[str] = []
        daemon.fault = vanish
        gang(world, "g", 4, required="rack")
        await world.until(
            lambda: lost and where(world, "g") == {"r1"} and len(world.running("g")) >= 4,
            within=400.0,
        )
        assert len({pod["spec"]["nodeName"] for pod in world.bound("g")}) == 4

    play(scenario)


def test_a_node_that_moves_to_another_rack_between_decision_and_binding(play):
    """The plan is dropped when it is seen: members end in one rack by the labels of that moment."""

    async def scenario(world):
        await racks(world, 3, 5)
        daemon = world.daemon()
        moved = []

        def move(method, path):
            if path.endswith("/binding") and not moved:
                moved.append(path)
                for number in range(3):
                    relabel(world, f"r0-n{number}", **{RACK: "r9"})
            return ""

        daemon.fault = move
        gang(world, "g", 3, required="rack")
        await world.until(lambda: len(world.running("g")) == 3)
        assert moved
        assert where(world, "g") in ({"r1"}, {"r9"})

    play(scenario)


def test_a_replacement_stays_with_the_survivors(play):
    """Though another rack is empty; and it waits when their rack is full, with the rack named."""

    async def scenario(world):
        await racks(world, 3, 3)
        world.daemon()
        gang(world, "g", 2, required="rack")
        await world.until(lambda: len(world.running("g")) == 2)
        (home,) = where(world, "g")
        victim = world.bound("g")[0]
        world.client.delete("pods", "default", victim["metadata"]["name"])
        await world.until(lambda: len(world.running("g")) == 2)
        assert where(world, "g") == {home}
        # Everything else in their rack is taken now, and the next member is lost with its node.
        free = {f"{home}-n{number}" for number in range(3)} - {
            pod["spec"]["nodeName"] for pod in world.bound("g")
        }
        for node in free:
            world.pod("filler", spec={"nodeName": node, "schedulerName": "other"})
        lost = world.bound("g")[0]
        world.client.delete("nodes", None, lost["spec"]["nodeName"])
        world.client.delete("pods", "default", lost["metadata"]["name"])
        await world.clock.sleep(30)
        assert where(world, "g") == {home}
        assert len(staying(world, "g")) == 1

    play(scenario)
