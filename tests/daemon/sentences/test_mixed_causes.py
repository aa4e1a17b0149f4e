"""Several causes at once, each named with its number: many kinds of waiting in one played cluster."""

from __future__ import annotations

from tests.daemon.sentences.explained import explained, facts
from tests.daemon.sentences.kinds_of_waiting import GROUP, containers, patch_nodes, runs

PLACES = "topology.kubernetes.io/zone"
APART = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "t"}}}


def claim(w, name, *, modes=("ReadWriteOnce",), storage_class="made"):
    w.client.create(
        "persistentvolumeclaims",
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "accessModes": list(modes), "storageClassName": storage_class,
                "resources": {"requests": {"storage": "1Gi"}},
            },
        },
    )  # fmt: skip


def storage_class(w, name, **more):
    w.client.create(
        "storageclasses.storage.k8s.io",
        {
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
            "provisioner": "example.com/disks", "volumeBindingMode": "WaitForFirstConsumer", **more,
        },
    )  # fmt: skip


def with_claim(name):
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": name}}
    return {"volumes": [volume]}


async def whys(w, asked):
    """Why each of some objects waits, by its name."""
    return {name: "; ".join(facts(await explained(w, word, name), "why")) for word, name in asked}


def test_each_node_is_told_by_what_is_wrong_with_it(play):
    """Given nodes that are cordoned, tainted, too small and taken, then each is counted as that."""

    async def scenario(w):
        await w.start(nodes=3)
        w.node("small", gpus=4)
        daemon = w.daemon()
        await w.until(lambda: daemon.leading)
        await runs(w, "busy", spec={"nodeName": "node-2"})
        patch_nodes(w, {"spec": {"unschedulable": True}}, "node-0")
        taint = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}
        patch_nodes(w, {"spec": {"taints": [taint]}}, "node-1")
        w.gang("train", 2)
        named = [{"key": "metadata.name", "operator": "In", "values": ["gone"]}]
        rule = {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchFields": named}]
            }
        }
        w.pod("by-name", gpus=1, spec={"affinity": {"nodeAffinity": rule}})
        big = containers(gpu="1")
        limits = {"nvidia.com/gpu": "16"}
        big["initContainers"] = [{"name": "i", "image": "i", "resources": {"limits": limits}}]
        w.pod("initially", spec=big)
        w.pod(
            "half",
            gpus=0,
            annotations={"gpusched.io/gpu-fraction": "0.5"},
            spec=containers(cpu="97"),
        )
        await w.clock.sleep(8)
        asked = [("podgroup", "train"), ("pod", "by-name"), ("pod", "initially")]
        assert await whys(w, asked) == {
            "train": (
                "InsufficientResources: needs 2 pods with 8 nvidia.com/gpu; none fit now; of 4 nodes: "
                "1 is cordoned, 1 has a taint that it does not tolerate (dedicated=x:NoSchedule), 1 has "
                "less than 8 nvidia.com/gpu in all, 1 lacks free nvidia.com/gpu; even empty they have "
                "room for 1 only"
            ),
            "by-name": (
                "Unschedulable: needs 1 pod with 1 nvidia.com/gpu; none fit now; of 4 nodes: 2 do not "
                "match its node affinity (metadata.name In gone), 1 is cordoned, 1 has a taint that it "
                "does not tolerate (dedicated=x:NoSchedule); no node is allowed to take it"
            ),
            "initially": (
                "Unschedulable: needs 1 pod with 16 nvidia.com/gpu; none fit now; of 4 nodes: 2 have "
                "less than 16 nvidia.com/gpu in all, 1 is cordoned, 1 has a taint that it does not "
                "tolerate (dedicated=x:NoSchedule); no allowed node offers more than 8 "
                "nvidia.com/gpu"
            ),
        }
        # and: what explain counts itself is what the daemon counts
        needs = facts(await explained(w, "pod", "initially"), "needs")
        assert needs[-1] == "1 waiting pod with nvidia.com/gpu 16 each"
        needs = facts(await explained(w, "pod", "half"), "needs")
        assert needs[-1] == "1 waiting pod with cpu 97, nvidia.com/gpu 0.5 each"

    play(scenario)


def test_pods_and_volumes_in_the_way_are_named(play):
    """Given claims, ports and distances that nodes cannot serve, then the sentence says which."""

    async def scenario(w):
        await w.start(nodes=2)
        for name, zone in (("node-0", "a"), ("node-1", "b")):
            labels = {"kubernetes.io/hostname": name, PLACES: zone}
            patch_nodes(w, {"metadata": {"labels": labels}}, name)
        storage_class(w, "made")
        terms = [{"matchLabelExpressions": [{"key": PLACES, "values": ["c"]}]}]
        storage_class(w, "elsewhere", allowedTopologies=terms)
        storage_class(w, "local", provisioner="kubernetes.io/no-provisioner")
        claim(w, "alone", modes=("ReadWriteOncePod",))
        claim(w, "far", storage_class="elsewhere")
        claim(w, "none", storage_class="local")
        claim(w, "typo", storage_class="fats")
        daemon = w.daemon()
        await w.until(lambda: daemon.leading)
        w.pod("first", gpus=1, spec=with_claim("alone"))
        await w.clock.sleep(3)
        for name, used in (
            ("second", "alone"),
            ("far", "far"),
            ("local", "none"),
            ("typo", "typo"),
        ):
            w.pod(name, gpus=1, spec=with_claim(used))
        near = {"topologyKey": "rack", "labelSelector": {"matchLabels": {"app": "db"}}}
        rule = {"requiredDuringSchedulingIgnoredDuringExecution": [near]}
        w.pod("near", gpus=1, spec={"affinity": {"podAffinity": rule}})
        w.group("apart", minMember=3)
        rule = {"requiredDuringSchedulingIgnoredDuringExecution": [APART]}
        for number in range(3):
            labels = {GROUP: "apart", "app": "t"}
            w.pod(
                f"t-{number}", gpus=1, labels=labels, spec={"affinity": {"podAntiAffinity": rule}}
            )
        w.pod(
            "claimant",
            gpus=0,
            spec={"resourceClaims": [{"name": "g", "resourceClaimName": "mine"}]},
        )
        await w.clock.sleep(8)
        names = ("second", "far", "local", "typo", "near", "claimant")
        asked = [("pod", name) for name in names]
        told = await whys(w, [*asked, ("podgroup", "apart")])
        start = "Unschedulable: needs 1 pod with 1 nvidia.com/gpu; none fit now; of 2 nodes: 2 "
        volumes = f"{start}cannot reach or provide the volumes it claims "
        assert told == {
            "second": (
                f"{volumes}(claim alone: it is for one pod alone, and default/first uses it)"
            ),
            "far": (
                f"{volumes}(claim far: class elsewhere makes volumes for nodes with {PLACES} In c)"
            ),
            "local": f"{volumes}(claim none: no volume of class local is free for it)",
            "typo": (
                "Unschedulable: pod typo uses the volume claim typo, which is not bound to a volume "
                "yet, and its storage class fats does not exist"
            ),
            "near": f"{start}do not satisfy its pod affinity (no node has the label rack)",
            "claimant": "InvalidSpec: pod claimant names ResourceClaim mine, which is not there",
            "apart": (
                "InsufficientResources: needs 3 pods with 1 nvidia.com/gpu; 2 fit now; of 2 nodes: 2 "
                "break its pod anti-affinity (other members of the gang)"
            ),
        }

    play(scenario)


def test_a_level_that_no_node_is_labelled_for_is_told_with_its_label(play):
    """Given nodes without racks, then the sentence says how nodes are labelled."""

    async def scenario(w):
        await w.start(nodes=1)
        patch_nodes(w, {"metadata": {"labels": {"gpusched.io/rack": None}}}, "node-0")
        w.daemon()
        w.group("train", minMember=1, topology={"required": "rack"})
        w.job("train", 1, group="train")
        await w.until(lambda: w.condition("train"))
        assert w.condition("train")["message"] == (
            "no node is labelled for topology level 'rack': label nodes with gpusched.io/rack or "
            "network.topology.nvidia.com/leaf, or name another level"
        )

    play(scenario)


def test_the_largest_holders_are_named_to_those_who_are_next(play):
    """Given nodes that others hold, then who holds most is told, who ends first, and only to the first eight."""

    async def scenario(w):
        await w.start(nodes=3)
        daemon = w.daemon()
        await w.until(lambda: daemon.leading)
        await runs(w, "long", spec={"nodeName": "node-0"})
        ends = {"gpusched.io/expected-duration": "1h", "gpusched.io/run-for": "1h"}
        await runs(w, "short", gpus=6, spec={"nodeName": "node-1"}, annotations=ends)
        await runs(w, "other", gpus=7, spec={"nodeName": "node-2"})
        for number in range(10):
            w.group(f"g-{number}", minMember=3)
            for member in range(3):
                w.pod(f"g-{number}-{member}", labels={GROUP: f"g-{number}"})
            await w.clock.sleep(1)
        await w.clock.sleep(8)
        told = [w.condition(f"g-{number}")["message"] for number in range(10)]
        least = "needs 3 pods with 8 nvidia.com/gpu; none fit now; of 3 nodes: 3 lack free nvidia.com/gpu"
        start, _, end = told[0].partition(" is the first to end, at ")
        holders = "default/long holds 8 nvidia.com/gpu, default/other 7, others the rest"
        assert start == f"{least}; {holders}; default/short"
        assert end.startswith("2026-01-01T01:00:0")
        assert [each == told[0] for each in told] == [True] * 8 + [False] * 2
        assert told[8:] == [least] * 2

    play(scenario)


def test_what_keeps_pods_from_being_created_is_told(play):
    """Given a quota of Kubernetes, or a Job without pods, then explain says why there are too few."""

    async def scenario(w):
        await w.start(nodes=2)
        daemon = w.daemon()
        await w.until(lambda: daemon.leading)
        hard = {"requests.nvidia.com/gpu": "8"}
        w.client.create(
            "resourcequotas",
            {
                "apiVersion": "v1", "kind": "ResourceQuota",
                "metadata": {"name": "q", "namespace": "default"}, "spec": {"hard": hard},
            },
        )  # fmt: skip
        w.gang("train", 2)
        w.group("idle", minMember=2)
        w.job("none", 2, group="idle", suspend=False)
        w.client.patch("jobs.batch", "default", "none", {"spec": {"parallelism": 0}})
        await w.clock.sleep(8)
        for word in ("podgroup", "job"):
            short, refused = facts(await explained(w, word, "train"), "why")
            assert short == "NotEnoughMembers: needs 2 pods together; 1 pod can run"
            assert refused.startswith("FailedCreate: Job train: Error creating: pods ")
            assert "exceeded quota: q, requested: requests.nvidia.com/gpu=8" in refused
        (short,) = facts(await explained(w, "job", "none"), "why")
        assert short == (
            "NotEnoughMembers: needs 2 pods together; 0 pods can run; Job default/none makes 0 at a "
            "time: raise parallelism and completions"
        )

    play(scenario)
