"""The rights that a running daemon uses are those of manifests/rbac.yaml, both ways."""

from __future__ import annotations

import re

import yaml

from gpusched.base import installed_files
from gpusched.devcluster.apimachinery.status import StatusError
from gpusched.devcluster.apiserver import resource_api as devcluster_api

OUTSIDE = {
    ("", "namespaces", "get"),
    ("", "namespaces", "create"),
    ("coordination.k8s.io", "leases", "create"),
}
"""With a kubeconfig the daemon makes what the manifests make in a cluster."""
BESIDE = {("scheduling.gpusched.io", "podgroups", "patch")}
"""What the process beside the daemon uses, that serves the view: it writes advice where a PodGroup asks."""
FAILURE = {"kind": "Status", "status": "Failure", "code": 500, "message": "try again"}
_PATH = re.compile(
    r"/(?:api/v1|apis/(?P<group>[^/]+)/[^/]+)(?:/namespaces/[^/]+(?=/))?"
    r"/(?P<resource>[^/]+)(?:/(?P<name>[^/]+))?(?:/(?P<sub>[^/]+))?"
)
_DISCOVERY = re.compile(r"/apis(/[^/]+/[^/]+)?").fullmatch
"""What is served is open to every account: the role system:discovery."""
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "WATCH": "watch"}


def right(method: str, path: str) -> tuple[str, str, str]:
    """Group, resource and verb as RBAC sees a request."""
    found = _PATH.fullmatch(path)
    assert found is not None, path
    resource = found["resource"] + (f"/{found['sub']}" if found["sub"] else "")
    verb = _VERBS.get(method) or ("get" if found["name"] else "list")
    return found["group"] or "", resource, verb


def granted(manifest: str = "rbac.yaml") -> set[tuple[str, str, str]]:
    """Group, resource and verb of every rule for the daemon's account."""
    docs = yaml.safe_load_all((installed_files.path("manifests") / manifest).read_text())
    return {
        (group, resource, verb)
        for doc in docs
        for rule in doc.get("rules", ())
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


async def claim_volumes(w):
    """A pod that takes a volume that is there, and one for which a volume is to be made."""
    modes = {"accessModes": ["ReadWriteOnce"]}
    for name, provisioner in (("made", "csi.example.com"), ("there", "")):
        w.client.create(
            "storageclasses.storage.k8s.io",
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "metadata": {"name": name},
                "provisioner": provisioner or "kubernetes.io/no-provisioner",
                "volumeBindingMode": "WaitForFirstConsumer",
            },
        )
        size = {"resources": {"requests": {"storage": "1Gi"}}}
        w.client.create(
            "persistentvolumeclaims",
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"storageClassName": name, **modes, **size},
            },
        )
    offer = {"capacity": {"storage": "1Gi"}, "hostPath": {"path": "/data"}}
    w.client.create(
        "persistentvolumes",
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "disk"},
            "spec": {"storageClassName": "there", **modes, **offer},
        },
    )
    available = {"status": {"phase": "Available"}}
    w.client.patch("persistentvolumes", None, "disk", available, subresource="status")
    for name in ("made", "there"):
        volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]
        w.pod(f"uses-{name}", gpus=0, spec={"volumes": volumes})
    await w.until(
        lambda: (
            w.client.get("persistentvolumes", None, "disk")["spec"].get("claimRef")
            and w.client.get("persistentvolumeclaims", "default", "made")["metadata"].get(
                "annotations"
            )
        )
    )


def test_rights_used_and_granted_are_the_same(play, monkeypatch):
    """A life with everything in it: gangs, waiting, a server error, an eviction, news again."""
    calls = []
    original = devcluster_api.bind_pod

    def fail_once(*args, **how):
        calls.append(1)
        if len(calls) == 1:
            raise StatusError(FAILURE)
        return original(*args, **how)

    monkeypatch.setattr(devcluster_api, "bind_pod", fail_once)

    async def scenario(w):
        await w.start(nodes=2)
        w.client.create(
            "queues.scheduling.gpusched.io",
            {
                "apiVersion": "scheduling.gpusched.io/v1alpha1",
                "kind": "Queue",
                "metadata": {"name": "team"},
                "spec": {"userLimits": {"perUser": {"maxRunning": 100}}},
            },
        )
        w.client.create(
            "topologies.scheduling.gpusched.io",
            {
                "apiVersion": "scheduling.gpusched.io/v1alpha1",
                "kind": "Topology",
                "metadata": {"name": "default"},
                "spec": {"levels": [{"name": "rack", "nodeLabel": "gpusched.io/rack"}]},
            },
        )
        w.client.create(
            "reservations.scheduling.gpusched.io",
            {
                "apiVersion": "scheduling.gpusched.io/v1alpha1",
                "kind": "Reservation",
                "metadata": {"name": "later"},
                "spec": {"from": "2027-01-01T00:00:00Z", "duration": "1h", "nodes": 1},
            },
        )
        first = w.daemon(kill_at=5, kill_on="/binding")
        w.gang("a", 2)  # three bindings, as one failed
        await w.until(lambda: len(w.running("a")) == 2)
        w.node("node-2")
        w.node("node-3")
        w.gang("b", 2)
        w.gang("c", 9, gpus=9)
        await w.until(lambda: first.dead)
        await w.clock.sleep(2)
        free = {f"node-{n}" for n in range(4)} - {p["spec"]["nodeName"] for p in w.bound()}
        for name in free:
            w.client.delete("nodes", None, name)
        second = w.daemon()
        await w.until(lambda: second.leading)
        for number in range(4):  # the same news twice, with other news between
            await w.clock.sleep(100)
            cordon = {"spec": {"unschedulable": number % 2 == 0}}
            w.client.patch("nodes", None, "node-0", cordon)
        await w.clock.sleep(100)
        w.job("paused", 1, gpus=1, suspend=True)
        label = {"metadata": {"labels": {"gpusched.io/queue": "team"}}}
        w.client.patch("jobs.batch", "default", "paused", label)
        w.node("late-0")
        w.node("late-1")
        await w.until(lambda: len(w.running("b")) == 2, within=300)
        await claim_volumes(w)

    world = play(scenario)
    used = {right(method, path) for method, path in world.used if not _DISCOVERY(path)}
    assert used - granted() - granted("rbac-adapters.yaml") - OUTSIDE == set()
    assert granted() - used == BESIDE
