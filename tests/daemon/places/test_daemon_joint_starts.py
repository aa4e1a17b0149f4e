"""The whole daemon where one gang after another would strand the last: it starts them together.

Racks of three and of four nodes; gangs of 2 (anywhere), of 3 (one rack) and of 2 (one rack), in
this order. The first finds the rack of three the tightest, the second then takes the other, and
one node is left in each.
"""

from __future__ import annotations

from gpusched.base import installed_files

RACK = "gpusched.io/rack"
QUEUES = "queues.scheduling.gpusched.io"
GANGS = (("a", 2, {}), ("b", 3, {"required": "rack"}), ("c", 2, {"required": "rack"}))


async def gangs_that_wait(world, queues=("default",) * 3, **limits):
    """The cluster, its queues and gangs, before any daemon runs."""
    await world.start(nodes=0)
    for rack, size in (("r0", 3), ("r1", 4)):
        for number in range(size):
            world.node(f"{rack}-n{number}", **{RACK: rack})
    for name in sorted({*queues} - {"default"}):
        world.client.create(
            QUEUES,
            {
                "apiVersion": "scheduling.gpusched.io/v1alpha1",
                "kind": "Queue",
                "metadata": {"name": name},
                "spec": limits.get(name, {"deserved": {"nvidia.com/gpu": 28}}),
            },
        )
    for (name, count, topology), queue in zip(GANGS, queues, strict=True):
        world.group(name, minMember=count, topology=topology, queue=queue)
        world.job(name, count, group=name)
        await world.clock.sleep(2)  # it is older than the next
    await world.until(lambda: len(world.pods()) == 7)


def racks(world, name):
    """Racks of the nodes that a gang's members are bound to."""
    return sorted({pod["spec"]["nodeName"][:2] for pod in world.bound(name)})


def held(world, queue):
    """GPUs that its status says it holds."""
    status = world.client.get(QUEUES, None, queue).get("status") or {}
    return str((status.get("allocated") or {}).get("nvidia.com/gpu", ""))


def test_three_gangs_start_where_one_by_one_two_would(play):
    """The first has made way for the third; whoever needs a rack is in one."""

    async def scenario(world):
        await gangs_that_wait(world)
        world.daemon()
        await world.until(lambda: len(world.running()) == 7)
        assert racks(world, "b") == ["r0"]
        assert racks(world, "a") == racks(world, "c") == ["r1"]
        assert [world.condition(name)["status"] for name in "abc"] == ["True"] * 3

    play(scenario)


def test_greedy_leaves_the_third_waiting(play, tmp_path):
    """What it is worth: the same cluster with the solver switched off."""

    async def scenario(world):
        await gangs_that_wait(world)
        text = (
            installed_files.path("conf/gpusched.yaml").read_text().replace("cpsat\n", "greedy\n", 1)
        )
        file = tmp_path / "greedy.yaml"
        file.write_text(text)
        world.daemon(config_file=str(file))
        await world.until(lambda: world.condition("c").get("reason") == "TopologyUnsatisfiable")
        assert len(world.running("a")) + len(world.running("b")) <= 5
        await world.until(lambda: len(world.running()) == 5)

    play(scenario)


def test_quota_keeps_the_third_waiting_although_there_would_be_room(play):
    """Its queue may hold 40 GPUs: the others start where they would without it."""

    async def scenario(world):
        capped = {"capability": {"nvidia.com/gpu": 40}, "deserved": {"nvidia.com/gpu": 40}}
        await gangs_that_wait(world, ("team",) * 3, team=capped)
        world.daemon()
        await world.until(lambda: len(world.running()) == 5)
        await world.until(lambda: "Quota" in world.condition("c").get("reason", ""))
        assert racks(world, "a") == ["r0"]
        assert racks(world, "b") == ["r1"]

    play(scenario)


def test_a_gang_of_another_queue_makes_way_and_starts_all_the_same(play):
    """Queues take turns as ever: all start, and each queue holds what its gangs ask for."""

    async def scenario(world):
        await gangs_that_wait(world, ("left", "right", "right"))
        world.daemon()
        await world.until(lambda: len(world.running()) == 7)
        await world.until(lambda: (held(world, "left"), held(world, "right")) == ("16", "40"))
        assert len(racks(world, "b")) == len(racks(world, "c")) == 1

    play(scenario)
