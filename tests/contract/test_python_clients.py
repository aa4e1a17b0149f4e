"""The two official Python clients, unchanged, against the cluster under test."""

from __future__ import annotations

import asyncio
import importlib
import json
import threading
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from .api import Api, pod

if TYPE_CHECKING:
    import kubernetes
    import kubernetes_asyncio
    from kubernetes_asyncio.client import ApiClient
    from kubernetes_asyncio.leaderelection.leaderelection import LeaderElection
else:

    class Library:
        """A package that is imported when a test asks for something in it.

        Together the two take 0.7 s of CPU and 95 MiB, in each worker of the suite that collects this.
        """

        def __init__(self, name):
            self._name = name

        def __getattr__(self, part):
            if part.startswith("_"):  # pytest looks for fixtures in all that a module holds
                raise AttributeError(part)
            return getattr(importlib.import_module(self._name), part)

    kubernetes, kubernetes_asyncio = Library("kubernetes"), Library("kubernetes_asyncio")


def binding(name: str, node: str) -> dict[str, Any]:
    """A Binding to a node."""
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    return {"metadata": {"name": name}, "target": target}


@pytest.fixture
def client(target: str) -> Iterator[kubernetes.client.ApiClient]:
    """The synchronous client."""
    path, _, context = target.partition("#")
    with kubernetes.config.new_client_from_config(path, context or None) as client:
        yield client


@pytest.fixture
async def aclient(target: str) -> AsyncIterator[ApiClient]:
    """The asynchronous client."""
    path, _, context = target.partition("#")
    configuration = kubernetes_asyncio.client.Configuration()
    await kubernetes_asyncio.config.load_kube_config(
        config_file=path, context=context or None, client_configuration=configuration
    )
    async with kubernetes_asyncio.client.ApiClient(configuration) as client:
        yield client


async def in_thread(work: Any, *args: Any, **how: Any) -> Any:
    """Run a call of the synchronous client beside the loop."""
    return await asyncio.to_thread(work, *args, **how)


async def test_async_pods_from_creation_to_eviction(api: Api, aclient: ApiClient, node: str):
    """Create, list, read, patch in three types, status, bind, evict, delete: typed answers."""
    core = kubernetes_asyncio.client.CoreV1Api(aclient)
    made = await core.create_namespaced_pod(api.ns, pod("a", labels={"l": "1"}))
    assert (made.status.phase, made.spec.priority) == ("Pending", 0)
    listed = await core.list_namespaced_pod(api.ns, label_selector="l=1", limit=5)
    assert [item.metadata.name for item in listed.items] == ["a"]
    body = {"metadata": {"labels": {"m": "2"}}}
    for media in ("application/merge-patch+json", "application/strategic-merge-patch+json"):
        patched = await core.patch_namespaced_pod("a", api.ns, body, _content_type=media)
    add = [{"op": "add", "path": "/metadata/labels/n", "value": "3"}]
    patched = await core.patch_namespaced_pod("a", api.ns, add)
    assert patched.metadata.labels == {"l": "1", "m": "2", "n": "3"}
    # The model of Binding wants a target, which the Status in the answer has not.
    done = await core.create_namespaced_pod_binding(
        "a", api.ns, binding("a", node), _preload_content=False
    )
    assert done.status == 201
    status = {"status": {"phase": "Running"}}
    await core.patch_namespaced_pod_status("a", api.ns, status)
    assert (await core.read_namespaced_pod("a", api.ns)).spec.node_name == node
    eviction = kubernetes_asyncio.client.V1Eviction(metadata={"name": "a"})
    await core.create_namespaced_pod_eviction("a", api.ns, eviction)
    leaving = await core.delete_namespaced_pod("a", api.ns, grace_period_seconds=0)
    assert leaving.metadata.deletion_timestamp is not None


async def test_async_errors_are_api_exceptions(api: Api, aclient: ApiClient):
    """404, 409 and 422 carry the Status as their body."""
    core = kubernetes_asyncio.client.CoreV1Api(aclient)
    with pytest.raises(kubernetes_asyncio.client.ApiException) as missing:
        await core.read_namespaced_pod("none", api.ns)
    assert (missing.value.status, json.loads(missing.value.body)["reason"]) == (404, "NotFound")
    await core.create_namespaced_pod(api.ns, pod("a"))
    with pytest.raises(kubernetes_asyncio.client.ApiException) as taken:
        await core.create_namespaced_pod(api.ns, pod("a"))
    assert (taken.value.status, taken.value.reason) == (409, "Conflict")


@pytest.mark.usefixtures("node")
async def test_async_watch_continues_and_meets_410(api: Api, aclient: ApiClient):
    """A watch goes on from a version; an expired one raises 410, where the history is not kept."""
    core = kubernetes_asyncio.client.CoreV1Api(aclient)
    since = (await core.list_namespaced_pod(api.ns)).metadata.resource_version
    for name in "ab":
        await core.create_namespaced_pod(api.ns, pod(name))
    seen = []
    watch = kubernetes_asyncio.watch.Watch()
    async with watch.stream(
        core.list_namespaced_pod, api.ns, resource_version=since, timeout_seconds=5
    ) as stream:
        async for event in stream:
            seen.append((event["type"], event["object"].metadata.name))
            if len(seen) == 2:
                break
    assert seen == [("ADDED", "a"), ("ADDED", "b")]
    assert int(watch.resource_version) > int(since)
    try:
        first = await _first_since_the_beginning(core)
    except kubernetes_asyncio.client.ApiException as expired:
        assert expired.status == 410  # noqa: PT017 - a young cluster keeps the full history
    else:
        assert first == "ADDED"


async def _first_since_the_beginning(core: Any) -> str:
    async with kubernetes_asyncio.watch.Watch().stream(
        core.list_node, resource_version="1", timeout_seconds=2
    ) as stream:
        async for event in stream:
            return str(event["type"])
    return "nothing"


async def test_async_leader_election(api: Api, aclient: ApiClient):
    """The election helper holds a Lease and renews it; another candidate waits."""
    elections = importlib.import_module("kubernetes_asyncio.leaderelection.leaderelection")
    configs = importlib.import_module("kubernetes_asyncio.leaderelection.electionconfig")
    locks = importlib.import_module("kubernetes_asyncio.leaderelection.resourcelock.leaselock")

    def candidate(name: str) -> LeaderElection:
        async def led() -> None:
            """Nothing to do while leading."""

        return elections.LeaderElection(
            configs.Config(
                locks.LeaseLock("lock", api.ns, name, aclient),
                lease_duration=15,
                renew_deadline=10,
                retry_period=2,
                onstarted_leading=led,
                onstopped_leading=None,
            )
        )

    one, two = candidate("one"), candidate("two")
    assert await one.try_acquire_or_renew()
    assert not await two.try_acquire_or_renew()
    assert await one.try_acquire_or_renew()
    held = await api.get(api.path("leases", "lock", group="coordination.k8s.io/v1"))
    assert held.body["spec"]["holderIdentity"] == "one"


async def test_async_custom_objects(api: Api, aclient: ApiClient):
    """A definition by its typed API; objects, their status and scale without models."""
    group = f"c{uuid.uuid4().hex[:8]}.example.com"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    replicas = {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}
    version = {"name": "v1", "served": True, "storage": True}
    version["schema"] = {"openAPIV3Schema": schema}
    version["subresources"] = {"status": {}, "scale": replicas}
    definition = {
        "metadata": {"name": f"things.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [version],
        },
    }
    extensions = kubernetes_asyncio.client.ApiextensionsV1Api(aclient)
    await extensions.create_custom_resource_definition(definition)
    await api.until(api.path("things", group=f"{group}/v1"), lambda reply: reply.code == 200)
    custom = kubernetes_asyncio.client.CustomObjectsApi(aclient)
    where = {"group": group, "version": "v1", "namespace": api.ns, "plural": "things"}
    body = {"apiVersion": f"{group}/v1", "kind": "Thing", "metadata": {"name": "a"}}
    await custom.create_namespaced_custom_object(**where, body={**body, "spec": {"size": 1}})
    change = {"spec": {"size": 2}}
    media = "application/merge-patch+json"
    changed = await custom.patch_namespaced_custom_object(
        **where, name="a", body=change, _content_type=media
    )
    assert (changed["spec"], changed["metadata"]["generation"]) == ({"size": 2}, 2)
    scale = await custom.get_namespaced_custom_object_scale(**where, name="a")
    assert scale["spec"]["replicas"] == 2
    listed = await custom.list_namespaced_custom_object(**where)
    assert [item["metadata"]["name"] for item in listed["items"]] == ["a"]
    await custom.delete_namespaced_custom_object(**where, name="a")
    await extensions.delete_custom_resource_definition(f"things.{group}")


async def test_async_other_groups(api: Api, aclient: ApiClient):
    """Jobs, deployments, budgets, leases and custom objects by their typed APIs."""
    spec = pod("a")["spec"] | {"restartPolicy": "Never"}
    job = {"metadata": {"name": "j"}, "spec": {"suspend": True, "template": {"spec": spec}}}
    batch = kubernetes_asyncio.client.BatchV1Api(aclient)
    made = await batch.create_namespaced_job(api.ns, job)
    assert made.spec.backoff_limit == 6
    policy = kubernetes_asyncio.client.PolicyV1Api(aclient)
    selector = {"matchLabels": {"a": "b"}}
    budget = {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": selector}}
    assert (await policy.create_namespaced_pod_disruption_budget(api.ns, budget)).spec.min_available
    apps = kubernetes_asyncio.client.AppsV1Api(aclient)
    labels = {"app": "w"}
    inner = {"metadata": {"labels": labels}, "spec": pod("a")["spec"]}
    deployment = {
        "metadata": {"name": "w"},
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": inner},
    }
    await apps.create_namespaced_deployment(api.ns, deployment)
    scaled = await apps.patch_namespaced_deployment_scale("w", api.ns, {"spec": {"replicas": 0}})
    assert scaled.kind == "Scale"


async def test_async_dynamic_client(api: Api, aclient: ApiClient):
    """Discovery, server-side apply and deletion without models."""
    dynamic = await importlib.import_module("kubernetes_asyncio.dynamic").DynamicClient(aclient)
    maps = await dynamic.resources.get(api_version="v1", kind="ConfigMap")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "1"}}
    applied = await maps.server_side_apply(body=body, namespace=api.ns, field_manager="dyn")
    assert applied.data.a == "1"
    assert (await maps.get(name="m", namespace=api.ns)).metadata.name == "m"
    await maps.delete(name="m", namespace=api.ns)


def _sync_lives(client: kubernetes.client.ApiClient, namespace: str, node: str) -> None:
    core = kubernetes.client.CoreV1Api(client)
    made = core.create_namespaced_pod(namespace, pod("a", labels={"l": "1"}))
    assert made.status.phase == "Pending"
    patched = core.patch_namespaced_pod("a", namespace, {"metadata": {"labels": {"m": "2"}}})
    assert patched.metadata.labels == {"l": "1", "m": "2"}
    body = binding("a", node)
    core.create_namespaced_binding(namespace, body, _preload_content=False)
    assert core.read_namespaced_pod("a", namespace).spec.node_name == node
    core.patch_namespaced_pod_status("a", namespace, {"status": {"phase": "Running"}})
    core.create_namespaced_pod_eviction(
        "a", namespace, kubernetes.client.V1Eviction(metadata={"name": "a"})
    )
    gone = core.delete_namespaced_pod("a", namespace, grace_period_seconds=0)
    assert gone.metadata.deletion_timestamp is not None
    with pytest.raises(kubernetes.client.ApiException) as missing:
        core.read_namespaced_pod("a", namespace)
    assert missing.value.status == 404


async def test_sync_pods(api: Api, client: kubernetes.client.ApiClient, node: str):
    """The synchronous client takes a pod through its life."""
    await in_thread(_sync_lives, client, api.ns, node)


def _sync_watch(client: kubernetes.client.ApiClient, namespace: str) -> list[str]:
    core = kubernetes.client.CoreV1Api(client)
    listed = core.list_namespaced_pod(namespace)
    for name in "ab":
        core.create_namespaced_pod(namespace, pod(name))
    watch = kubernetes.watch.Watch()
    seen = []
    since = listed.metadata.resource_version
    for event in watch.stream(
        core.list_namespaced_pod, namespace, resource_version=since, timeout_seconds=5
    ):
        seen.append(event["object"].metadata.name)
        if len(seen) == 2:
            watch.stop()
    history = kubernetes.watch.Watch().stream(
        core.list_node, resource_version="1", timeout_seconds=2
    )
    try:
        assert next(iter(history), {})["type"] == "ADDED"
    except kubernetes.client.ApiException as expired:
        assert expired.status == 410  # noqa: PT017 - a young cluster keeps the full history
    return seen


@pytest.mark.usefixtures("node")
async def test_sync_watch(api: Api, client: kubernetes.client.ApiClient):
    """A watch goes on from the version of a list; an expired one raises 410, where the history is not kept."""
    assert await in_thread(_sync_watch, client, api.ns) == ["a", "b"]


async def test_sync_create_from_yaml(api: Api, client: Any, tmp_path: Path):
    """Several documents of a file, Jobs and config maps, are created."""
    spec = pod("a")["spec"] | {"restartPolicy": "Never"}
    documents = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "1"}},
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "j"},
            "spec": {"suspend": True, "template": {"spec": spec}},
        },
    ]
    file = tmp_path / "all.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    await in_thread(kubernetes.utils.create_from_yaml, client, str(file), namespace=api.ns)
    assert (await api.get(api.path("jobs", "j", group="batch/v1"))).code == 200


def _sync_dynamic(client: kubernetes.client.ApiClient, namespace: str) -> None:
    dynamic = kubernetes.dynamic.DynamicClient(client)
    leases = dynamic.resources.get(api_version="coordination.k8s.io/v1", kind="Lease")
    body = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "x"}}
    assert leases.create(body=body, namespace=namespace).spec.holderIdentity == "x"
    body["apiVersion"], body["kind"] = "coordination.k8s.io/v1", "Lease"
    applied = leases.server_side_apply(
        body=body, namespace=namespace, field_manager="dyn", force_conflicts=True
    )
    assert applied.metadata.name == "l"
    (event,) = leases.watch(namespace=namespace, timeout=1)
    assert event["type"] == "ADDED"


async def test_sync_dynamic_client(api: Api, client: kubernetes.client.ApiClient):
    """The dynamic client finds kinds by discovery, creates, applies and watches."""
    await in_thread(_sync_dynamic, client, api.ns)


def _elect(client: kubernetes.client.ApiClient, namespace: str) -> None:
    from kubernetes.leaderelection import electionconfig, leaderelection  # noqa: PLC0415
    from kubernetes.leaderelection.resourcelock.configmaplock import ConfigMapLock  # noqa: PLC0415

    kubernetes.client.Configuration.set_default(client.configuration)
    leading = threading.Event()
    config = electionconfig.Config(
        ConfigMapLock("lock", namespace, "me"),
        lease_duration=3,
        renew_deadline=2,
        retry_period=1,
        onstarted_leading=leading.set,
        onstopped_leading=None,
    )
    election = leaderelection.LeaderElection(config)
    try:
        assert election.try_acquire_or_renew()
    finally:
        kubernetes.client.Configuration.set_default(None)
    assert election.try_acquire_or_renew()
    held = kubernetes.client.CoreV1Api(client).read_namespaced_config_map("lock", namespace)
    record = json.loads(held.metadata.annotations["control-plane.alpha.kubernetes.io/leader"])
    assert record["holderIdentity"] == "me"


async def test_sync_leader_election(api: Api, client: kubernetes.client.ApiClient):
    """The election helper acquires its lock and renews it."""
    await in_thread(_elect, client, api.ns)


def _informer(core: Any, namespace: str, known: dict[str, str], enough: threading.Event) -> None:
    listed = core.list_namespaced_config_map(namespace)
    known.update({m.metadata.name: m.metadata.resource_version for m in listed.items})
    since = listed.metadata.resource_version
    for event in kubernetes.watch.Watch().stream(
        core.list_namespaced_config_map, namespace, resource_version=since, timeout_seconds=10
    ):
        meta = event["object"].metadata
        if event["type"] == "DELETED":
            known.pop(meta.name)
        else:
            known[meta.name] = meta.resource_version
        if "last" in known:
            enough.set()
            return


async def test_sync_list_then_watch_mirrors_the_cluster(api: Api, client: Any):
    """What an informer holds after many writes is what a list shows."""
    core = kubernetes.client.CoreV1Api(client)
    known: dict[str, str] = {}
    enough = threading.Event()
    mirror = asyncio.create_task(in_thread(_informer, core, api.ns, known, enough))
    maps = api.path("configmaps")
    for i in range(20):
        await api.post(maps, {"metadata": {"name": f"m{i}"}})
        if i % 3 == 0:
            await api.delete(f"{maps}/m{i}")
        elif i % 3 == 1:
            await api.patch(f"{maps}/m{i}", {"data": {"a": "1"}})
    await api.post(maps, {"metadata": {"name": "last"}})
    await mirror
    assert enough.is_set()
    listed = (await api.get(maps)).body["items"]
    assert known == {m["metadata"]["name"]: m["metadata"]["resourceVersion"] for m in listed}
