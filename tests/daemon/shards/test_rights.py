"""Daemons of shards need the rights of manifests/rbac.yaml and manifests/shards/rbac.yaml, and no others."""

from __future__ import annotations

import asyncio

import pytest

from gpusched.base.installed_files import path
from tests.daemon.tenants.test_policies import late_bindings

FOLDER = path("manifests") / "shards"


def test_daemons_get_along_with_the_rights_of_the_example(sharded):
    async def story(shards):
        # given a cluster with the shipped rights and policies, and what the example says to add and to leave out
        await shards.start(
            nodes=2,
            policies=True,
            apply=[FOLDER / name for name in ("leases.yaml", "rbac.yaml", "fence.yaml")],
        )
        shards.world.client.delete(
            "validatingadmissionpolicybindings.admissionregistration.k8s.io", None, "gpusched-fence"
        )
        shards.queue("team", capability=16)

        # when two daemons place gangs, one is killed and the other takes over
        shards.daemon("north", "south")
        second = shards.daemon("south", "north")
        await shards.world.until(lambda: shards.holders() == {"north": "d-0", "south": "d-1"})
        for number in range(3):
            shards.gang(f"g{number}", 1, queue="default")
        await shards.world.until(lambda: len(shards.world.bound()) == 3, 60)
        second.kill()

        # then nothing that they ask for is refused
        await shards.world.until(lambda: shards.holders()["south"] == "d-0", 90)
        assert [told for each in shards.world.daemons for told in each.refused] == []

    sharded(story, "north", "south")


@pytest.mark.parametrize(("fenced", "code"), [(True, 403), (False, 201)])
def test_a_late_binding_of_a_daemon_whose_shard_was_taken_over_meets_the_fence(
    sharded, monkeypatch, fenced, code
):
    async def story(shards):
        # given two daemons of which what the first binds is on its way for longer than a Lease lasts
        files = ("leases.yaml", "rbac.yaml", *(["fence.yaml"] if fenced else []))
        await shards.start(nodes=1, policies=True, apply=[FOLDER / name for name in files])
        world = shards.world
        world.client.delete(
            "validatingadmissionpolicybindings.admissionregistration.k8s.io", None, "gpusched-fence"
        )
        codes = late_bindings(monkeypatch, world, 40.0)
        first = shards.daemon("south", "north")
        shards.daemon("north", "south")
        await world.until(lambda: shards.holders() == {"south": "d-0", "north": "d-1"})
        await world.clock.sleep(5)
        world.pod("late", spec={"nodeSelector": {"pool": "south"}})
        await world.clock.sleep(3)

        # when it stands still, its node goes, and the other takes its shard over
        asyncio.get_running_loop().freeze(first)
        world.client.delete("nodes", None, "south-0")
        await world.until(lambda: shards.holders() == {"south": "d-1", "north": "d-1"}, 90)
        assert world.bound() == []
        await world.until(lambda: len(codes) == 1, 90)
        asyncio.get_running_loop().thaw(first)

        # then the server refuses the binding; without the policy the pod is on a node that is gone
        assert codes == [code]
        assert len(world.bound()) == (0 if fenced else 1)
        for pod in world.bound():  # the invariants would tell
            world.client.delete("pods", "default", pod["metadata"]["name"], grace_s=0)

        # and the daemon that took it over binds under its own fence
        shards.world.node("south-1", 8, pool="south")
        world.pod("next", spec={"nodeSelector": {"pool": "south"}})
        await world.until(lambda: len(world.bound()) == 1, 60)
        (pod,) = world.bound()
        assert pod["metadata"]["annotations"]["gpusched.io/fence"].startswith("north:d-1_")

    sharded(story, "south", "north", freezing=True)


@pytest.mark.parametrize("cares", [("south",), ("south", "north")])
def test_a_late_binding_of_a_dead_daemon_in_its_second_shard_meets_the_fence(
    sharded, monkeypatch, cares
):
    async def story(shards):
        # given a daemon that holds both shards and dies, and what it binds in the second is on its way
        files = ("leases.yaml", "rbac.yaml", "fence.yaml")
        await shards.start(nodes=1, policies=True, apply=[FOLDER / name for name in files])
        world = shards.world
        world.client.delete(
            "validatingadmissionpolicybindings.admissionregistration.k8s.io", None, "gpusched-fence"
        )
        codes = late_bindings(monkeypatch, world, 20.0)
        first = shards.daemon("north", "south")
        await world.until(lambda: shards.holders() == {"south": "d-0", "north": "d-0"}, 90)
        await world.clock.sleep(5)
        world.pod("late", spec={"nodeSelector": {"pool": "south"}})
        await world.clock.sleep(1)
        first.kill()

        # when another takes the second shard over, and gives the node to a pod that goes before
        high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1000}
        world.client.create(
            "priorityclasses.scheduling.k8s.io", {**high, "metadata": {"name": "high"}}
        )
        world.pod("next", spec={"nodeSelector": {"pool": "south"}, "priorityClassName": "high"})
        shards.daemon(*cares)
        await world.until(world.bound, 18)
        assert codes == []
        await world.until(lambda: codes, 60)

        # then the server refuses what was under way
        assert codes == [403]
        assert [pod["metadata"]["name"] for pod in world.bound()] == ["next"]

    sharded(story, "north", "south")
