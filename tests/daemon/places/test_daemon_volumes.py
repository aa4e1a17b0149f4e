"""Volumes before pods, and room that other schedulers wait for: on the whole daemon."""

from __future__ import annotations

from typing import Any

CLAIMS = "persistentvolumeclaims"
SELECTED = "volume.kubernetes.io/selected-node"


def storage_class(w: Any, name: str, provisioner: str = "csi.example.com") -> None:
    """A class whose claims wait for a pod."""
    w.client.create(
        "storageclasses.storage.k8s.io",
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": name},
            "provisioner": provisioner,
            "volumeBindingMode": "WaitForFirstConsumer",
        },
    )


def claim(w: Any, name: str, storage: str) -> None:
    """A claim of one GiB."""
    w.client.create(
        CLAIMS,
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "storageClassName": storage,
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        },
    )


def volume(w: Any, name: str, storage: str, *nodes: str) -> None:
    """A volume that only these nodes reach."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": list(nodes)}]}
    w.client.create(
        "persistentvolumes",
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {
                "storageClassName": storage,
                "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": "1Gi"},
                "local": {"path": "/data"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
            },
        },
    )
    w.client.patch(
        "persistentvolumes", None, name, {"status": {"phase": "Available"}}, subresource="status"
    )


def bind(w: Any, name: str, volume_name: str) -> None:
    """What the controller of volumes does in the end."""
    note = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    w.client.patch(CLAIMS, "default", name, {"metadata": note, "spec": {"volumeName": volume_name}})


def uses(*names: str) -> dict[str, Any]:
    """A pod's volumes."""
    return {
        "volumes": [
            {"name": f"v{i}", "persistentVolumeClaim": {"claimName": name}}
            for i, name in enumerate(names)
        ]
    }


def selected(w: Any, name: str) -> str:
    """The node that a claim was told."""
    notes = w.client.get(CLAIMS, "default", name)["metadata"].get("annotations") or {}
    return notes.get(SELECTED, "")


def test_a_gang_waits_for_the_volumes_of_all_its_members(play):
    """Each claim is told its node; nobody is bound until the last volume is there."""

    async def scenario(w):
        await w.start(nodes=2)
        storage_class(w, "fast")
        w.daemon()
        w.group("g", minMember=2)
        for number in range(2):
            claim(w, f"data-{number}", "fast")
            labels = {"gpusched.io/pod-group": "g"}
            w.pod(f"g-{number}", spec=uses(f"data-{number}"), labels=labels)
        await w.until(lambda: selected(w, "data-0") and selected(w, "data-1"))
        nodes = [selected(w, f"data-{number}") for number in range(2)]
        assert sorted(nodes) == ["node-0", "node-1"]
        volume(w, "pv-0", "fast", nodes[0])
        bind(w, "data-0", "pv-0")
        await w.clock.sleep(30.0)
        assert w.bound() == []
        volume(w, "pv-1", "fast", nodes[1])
        bind(w, "data-1", "pv-1")
        await w.until(lambda: len(w.bound()) == 2)
        where = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in w.bound()}
        assert where == {"g-0": nodes[0], "g-1": nodes[1]}

    play(scenario)


def test_volumes_that_do_not_come_give_the_places_back(play):
    """After ten minutes; the claim keeps its node, so that a late volume still serves."""

    async def scenario(w):
        await w.start(nodes=1)
        storage_class(w, "slow")
        w.daemon()
        claim(w, "data", "slow")
        w.pod("late", spec=uses("data"))
        await w.until(lambda: selected(w, "data") == "node-0")
        w.pod("other", gpus=8)
        await w.clock.sleep(300.0)
        assert w.bound() == []
        w.client.delete("pods", "default", "late")
        await w.until(lambda: [p["metadata"]["name"] for p in w.bound()] == ["other"])

    play(scenario)


def test_the_next_leader_goes_on_where_the_first_died(play):
    """The claim remembers its node; the pod is bound there once."""

    async def scenario(w):
        await w.start(nodes=3)
        storage_class(w, "fast")
        first = w.daemon()
        claim(w, "data", "fast")
        w.pod("p", spec=uses("data"))
        await w.until(lambda: selected(w, "data"))
        node = selected(w, "data")
        first.kill()
        w.daemon()
        volume(w, "pv", "fast", node)
        bind(w, "data", "pv")
        await w.until(w.bound, within=120.0)
        assert [pod["spec"]["nodeName"] for pod in w.bound()] == [node]

    play(scenario)


def test_a_volume_that_is_there_is_given_to_the_claim(play):
    """The pod goes where the volume is, and the volume is promised to its claim."""

    async def scenario(w):
        await w.start(nodes=3)
        storage_class(w, "local", "kubernetes.io/no-provisioner")
        volume(w, "disk", "local", "node-2")
        w.daemon()
        claim(w, "data", "local")
        w.pod("p", spec=uses("data"))

        def promised() -> dict[str, Any]:
            return w.client.get("persistentvolumes", None, "disk")["spec"].get("claimRef") or {}

        await w.until(promised)
        assert (promised()["namespace"], promised()["name"]) == ("default", "data")
        assert selected(w, "data") == ""
        bind(w, "data", "disk")
        await w.until(w.bound)
        assert [pod["spec"]["nodeName"] for pod in w.bound()] == ["node-2"]

    play(scenario)


def test_a_claim_that_is_not_there_is_named(play):
    """In the condition of the pod; when it comes, the pod starts."""

    async def scenario(w):
        await w.start(nodes=1)
        storage_class(w, "fast")
        w.daemon()
        w.pod("p", spec=uses("data"))
        await w.until(lambda: "which does not exist" in w.told("p").get("message", ""))
        claim(w, "data", "fast")
        await w.until(lambda: selected(w, "data") == "node-0")

    play(scenario)


def test_room_that_another_scheduler_waits_for_is_left(play):
    """A pod of its own that it nominated keeps its room against ours of the same priority."""

    async def scenario(w):
        await w.start(nodes=1)
        w.pod("theirs", gpus=8, spec={"schedulerName": "other"})
        w.client.patch(
            "pods",
            "default",
            "theirs",
            {"status": {"nominatedNodeName": "node-0"}},
            subresource="status",
        )
        w.daemon()
        w.pod("ours", gpus=1)
        words = "keep room for pods of other schedulers nominated there"
        await w.until(lambda: words in w.told("ours").get("message", ""))
        assert w.bound() == []
        w.client.delete("pods", "default", "theirs")
        await w.until(lambda: [p["metadata"]["name"] for p in w.bound()] == ["ours"])

    play(scenario)
