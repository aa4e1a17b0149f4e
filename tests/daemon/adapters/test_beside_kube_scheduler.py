"""Groups of Kubernetes' own scheduler on the same nodes: nothing is decided or told twice."""

from __future__ import annotations

from gpusched.devcluster.registry.gangs.features import all_gates
from tests.daemon.adapters.native_gang_player import Player

KUBE = "default-scheduler"


async def beside(w, **nodes):
    """A cluster with nodes of these GPUs and a daemon that leads; kube-scheduler is played."""
    await w.start(nodes=0, gangs=all_gates("1.36"))
    player = Player(w)
    await player.prepare({"nodes": nodes})
    w.daemon()
    await w.until(lambda: w.daemons[0].leading)
    return player


def held(w):
    """Nodes of pods that have one, by name of the pod."""
    return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in w.bound()}


def bind_as_kube_scheduler(w, **nodes):
    """Bind pods of the default scheduler."""
    for name, node in nodes.items():
        w.client.bind("default", name.replace("_", "-"), node)


def written_about(w, name):
    """Our writes to an object of that name, and events about it."""
    paths = [write.path for write in w.journal if f"/{name}" in write.path]
    told = [
        each
        for each in w.client.list("events", "default")
        if each["involvedObject"]["name"] == name
    ]
    return paths + told


def test_groups_of_the_default_scheduler_are_usage_and_nothing_else(play):
    """Their pods hold room; no status, event or eviction of ours touches group or pods."""

    async def scenario(w):
        player = await beside(w, n1=2, n2=2)
        player.group("k", 2, priorityClass="low")
        player.pods("k-0..1", group="k", scheduler=KUBE)
        player.group("lacks", 3)
        player.pods("lacks-0", group="lacks", scheduler=KUBE)
        player.group("empty", 2)
        bind_as_kube_scheduler(w, k_0="n1", k_1="n2")
        await w.until(lambda: len(w.running()) == 2)
        player.group("a", 3, priorityClass="high")
        player.pods("a-0..2", group="a")
        await w.until(lambda: "2 fit now" in player.group_says("a"))
        await w.clock.sleep(60)
        assert held(w) == {"k-0": "n1", "k-1": "n2"}
        for name in ("k", "k-0", "k-1", "lacks", "lacks-0", "empty"):
            assert written_about(w, name) == []
        w.client.delete("pods", "default", "k-1")
        await w.until(lambda: len(held(w)) == 4, within=90)

    play(scenario)


def test_a_group_whose_pods_name_two_schedulers_is_held_and_says_whose_they_are(play):
    """Even where enough of them are ours; once the other one is gone the group starts."""

    async def scenario(w):
        player = await beside(w, n1=2, n2=2)
        player.group("m", 2)
        player.pods("m-0..1", group="m")
        player.pods("m-2", group="m", scheduler=KUBE)
        player.pods("single")
        await w.until(lambda: "such as m-2 of default-scheduler" in player.group_says("m"))
        await w.until(lambda: "schedulers (1 of 3" in w.told("m-0").get("message", ""))
        await w.until(lambda: set(held(w)) == {"single"})
        await w.clock.sleep(30)
        assert set(held(w)) == {"single"}
        assert written_about(w, "m-2") == []
        w.client.delete("pods", "default", "m-2", grace_s=0)
        await w.until(lambda: set(held(w)) == {"single", "m-0", "m-1"})

    play(scenario)


def test_a_group_is_handed_over_from_the_default_scheduler(play):
    """Given pods replaced one by one, ours wait for the last of theirs, and then start together."""

    async def scenario(w):
        player = await beside(w, n1=2)
        player.group("h", 2)
        player.pods("h-0..1", group="h", scheduler=KUBE)
        bind_as_kube_scheduler(w, h_0="n1", h_1="n1")
        await w.until(lambda: len(w.running()) == 2)
        assert written_about(w, "h") == []
        w.client.delete("pods", "default", "h-1", grace_s=0)
        player.pods("h-2", group="h")
        await w.until(
            lambda: "such as h-0 of default-scheduler" in w.told("h-2").get("message", "")
        )
        await w.clock.sleep(30)
        assert set(held(w)) == {"h-0"}
        w.client.delete("pods", "default", "h-0", grace_s=0)
        player.pods("h-3", group="h")
        await w.until(lambda: set(held(w)) == {"h-2", "h-3"})
        await w.until(lambda: player.condition("h").get("status") == "True")

    play(scenario)


def test_a_group_is_handed_over_to_the_default_scheduler(play):
    """Given a gang of ours, members that name the other scheduler are left to it, ours run on."""

    async def scenario(w):
        player = await beside(w, n1=2)
        player.group("g", 2)
        player.pods("g-0..1", group="g")
        await w.until(lambda: len(w.running()) == 2)
        w.client.delete("pods", "default", "g-1", grace_s=0)
        player.pods("g-2", group="g", scheduler=KUBE)
        await w.until(lambda: "such as g-2 of default-scheduler" in player.group_says("g"))
        bind_as_kube_scheduler(w, g_2="n1")
        await w.clock.sleep(30)
        assert set(held(w)) == {"g-0", "g-2"}
        w.client.delete("pods", "default", "g-0", grace_s=0)
        player.pods("g-3", group="g", scheduler=KUBE)
        await w.clock.sleep(3)
        await w.until(lambda: "its pods name default-scheduler, which" in player.group_says("g"))
        told = player.group_says("g")
        await w.clock.sleep(120)
        assert player.group_says("g") == told
        assert written_about(w, "g-2") == written_about(w, "g-3") == []

    play(scenario)


def test_room_that_the_default_scheduler_has_nominated_is_kept_for_its_pods(play):
    """Until its pod is bound elsewhere: then the gang that was told so starts."""

    async def scenario(w):
        player = await beside(w, n1=2, n2=2)
        player.pods("x", gpu=2, scheduler=KUBE)
        body = {"status": {"nominatedNodeName": "n1"}}
        w.client.patch("pods", "default", "x", body, subresource="status")
        player.group("a", 4)
        player.pods("a-0..3", group="a")
        says = "1 keep room for pods of other schedulers nominated there"
        await w.until(lambda: says in player.group_says("a"))
        await w.clock.sleep(30)
        assert held(w) == {}
        w.client.delete("pods", "default", "x", grace_s=0)
        await w.until(lambda: len(held(w)) == 4)

    play(scenario)
