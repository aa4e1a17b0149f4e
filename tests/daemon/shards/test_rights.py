"""Daemons of shards need the rights of manifests/rbac.yaml and manifests/shards/rbac.yaml, and no others."""

from __future__ import annotations

from gpusched.base.installed_files import path

FOLDER = path("manifests") / "shards"


def test_daemons_get_along_with_the_rights_of_the_example(sharded):
    async def story(shards):
        # given a cluster with the shipped rights and policies, and what the example says to add and to leave out
        await shards.start(
            nodes=2, policies=True, apply=[FOLDER / "leases.yaml", FOLDER / "rbac.yaml"]
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
