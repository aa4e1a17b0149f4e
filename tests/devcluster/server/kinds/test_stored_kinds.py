"""Kinds that are stored for others to read: defaults, what is sealed, tables, clearing."""

from __future__ import annotations

import asyncio

import pytest

from gpusched.devcluster.cluster import ClusterOptions, start

NS = "/api/v1/namespaces/default"
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
NET = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies"
STORAGE = "/apis/storage.k8s.io/v1"
CLAIM = {
    "metadata": {"name": "c"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}
VOLUME = {
    "metadata": {"name": "v"},
    "spec": {
        "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "hostPath": {"path": "/x"},
    },
}


async def test_claims_of_volumes_wait(http):
    """A claim is Pending, of the default class, and changes only by being bound."""
    marked = {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}
    fast = {"metadata": {"name": "fast", **marked}, "provisioner": "p.example.com"}
    await http.post(f"{STORAGE}/storageclasses", fast)
    made = (await http.post(f"{NS}/persistentvolumeclaims", CLAIM)).body
    assert made["status"] == {"phase": "Pending"}
    assert made["spec"]["storageClassName"] == "fast"
    assert made["spec"]["volumeMode"] == "Filesystem"
    path = f"{NS}/persistentvolumeclaims/c"
    refused = await http.patch(path, {"spec": {"accessModes": ["ReadWriteMany"]}})
    assert "spec is immutable after creation except" in refused.message
    assert (await http.patch(path, {"spec": {"volumeName": "v"}})).code == 200
    bound = await http.patch(f"{path}/status", {"status": {"phase": "Bound"}})
    assert bound.body["status"]["phase"] == "Bound"


async def test_storage_classes_are_sealed(http):
    """Defaults are filled in; the provisioner never changes."""
    path = f"{STORAGE}/storageclasses"
    made = (await http.post(path, {"metadata": {"name": "s"}, "provisioner": "p"})).body
    assert (made["reclaimPolicy"], made["volumeBindingMode"]) == ("Delete", "Immediate")
    refused = await http.patch(f"{path}/s", {"provisioner": "q"})
    assert refused.message.endswith("provisioner: Forbidden: updates to provisioner are forbidden.")


@pytest.mark.parametrize(
    ("path", "body", "fields"),
    [
        (
            f"{NS}/persistentvolumeclaims",
            {"spec": {}},
            ["spec.accessModes", "spec.resources[storage]"],
        ),
        ("/api/v1/persistentvolumes", {"spec": {}}, ["spec.accessModes", "spec.capacity", "spec"]),
        (f"{STORAGE}/storageclasses", {}, ["provisioner"]),
        (NET, {"spec": {"ingress": [{"from": [{}]}]}}, ["spec.ingress[0].from[0]"]),
        (NET, {"spec": {"policyTypes": ["Up"]}}, ["spec.policyTypes[0]"]),
        (f"{NS}/podtemplates", {"template": {}}, ["template.spec.containers"]),
    ],
)
async def test_objects_that_lack_something(http, path, body, fields):
    """Each refusal names every field that is missing or wrong."""
    refused = await http.post(path, {"metadata": {"name": "x"}, **body})
    assert refused.code == 422, refused.body
    assert [c["field"] for c in refused.body["details"]["causes"]] == fields


async def test_network_policies(http):
    """Directions follow from the rules; ports are TCP."""
    body = {"metadata": {"name": "n"}, "spec": {"egress": [{"ports": [{"port": 53}]}]}}
    made = (await http.post(NET, body)).body
    assert made["spec"] == {
        "podSelector": {},
        "egress": [{"ports": [{"port": 53, "protocol": "TCP"}]}],
        "policyTypes": ["Ingress", "Egress"],
    }
    assert made["metadata"]["generation"] == 1


@pytest.mark.parametrize(
    ("path", "body", "shown"),
    [
        (
            f"{NS}/services",
            {"spec": {"ports": [{"port": 80}], "type": "LoadBalancer"}},
            {"Type": "LoadBalancer", "External-IP": "<pending>", "Port(s)": "80:30086/TCP"},
        ),
        (
            f"{NS}/services",
            {"spec": {"type": "ExternalName", "externalName": "a.b"}},
            {"Cluster-IP": "<none>", "External-IP": "a.b", "Port(s)": "<none>"},
        ),
        (
            f"{NS}/endpoints",
            {"subsets": [{"addresses": [{"ip": f"10.0.0.{i}"} for i in range(5)],
                          "ports": [{"port": 80}]}]},
            {"Endpoints": "10.0.0.0:80,10.0.0.1:80,10.0.0.2:80 + 2 more..."},
        ),
        (
            "/api/v1/persistentvolumes",
            VOLUME,
            {"Capacity": "1Gi", "Access Modes": "RWO,RWX", "Reclaim Policy": "Retain",
             "Status": "Pending", "VolumeAttributesClass": "<unset>"},
        ),
        (f"{NS}/persistentvolumeclaims", CLAIM, {"Status": "Pending", "Volume": "", "Capacity": ""}),
        (
            f"{STORAGE}/csidrivers",
            {"spec": {}},
            {"AttachRequired": "true", "TokenRequests": "<unset>", "Modes": "Persistent"},
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
            {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
             "subjects": [{"kind": "ServiceAccount", "name": "s", "namespace": "n"},
                          {"kind": "User", "name": "u",
                           "apiGroup": "rbac.authorization.k8s.io"}]},
            {"Role": "Role/r", "Users": "u", "ServiceAccounts": "n/s"},
        ),
        (
            "/apis/apps/v1/namespaces/default/controllerrevisions",
            {"revision": 3},
            {"Controller": "<none>", "Revision": 3},
        ),
        (
            "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims",
            {"spec": {}},
            {"State": "pending"},
        ),
    ],
)  # fmt: skip
async def test_tables(http, path, body, shown):
    """The cells are those that ``kubectl get`` shows of a real server."""
    made = await http.post(path, {"metadata": {"name": "x"}, **body})
    assert made.code == 201, made.body
    name = made.body["metadata"]["name"]
    table = (await http.get(f"{path}/{name}", accept=TABLE)).body
    names = [c["name"] for c in table["columnDefinitions"]]
    cells = dict(zip(names, table["rows"][0]["cells"], strict=True))
    assert {name: cells[name] for name in shown} == shown


async def test_a_deleted_namespace_takes_them_along():
    """No kind that can be written survives its namespace."""
    cluster = await start(ClusterOptions(stages=False))
    client = cluster.client
    try:
        head = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}
        client.create("namespaces", head)
        for kind, body in (
            ("services", {"spec": {"ports": [{"port": 1}]}}),
            ("limitranges", {"spec": {"limits": [{"type": "Pod"}]}}),
            ("networkpolicies.networking.k8s.io", {"spec": {}}),
            ("resourceclaims.resource.k8s.io", {"spec": {}}),
        ):
            client.create(kind, {"metadata": {"name": "x"}, **body}, "n")
        client.delete("namespaces", None, "n")
        async with asyncio.timeout(30):
            while client.get("namespaces", None, "n") is not None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert client.get("services", "n", "x") is None
        assert client.get("resourceclaims.resource.k8s.io", "n", "x") is None
    finally:
        await cluster.close()


async def test_api_services_follow_what_is_served(http):
    """Every group version has its entry, custom ones come and go, nobody writes them."""
    path = "/apis/apiregistration.k8s.io/v1/apiservices"
    groups = (await http.get("/apis")).body["groups"]
    served = {f"{v['version']}.{g['name']}" for g in groups for v in g["versions"]}
    served = served - {"v1.apiregistration.k8s.io"} | {"v1."}
    found = (await http.get(path)).body["items"]
    assert {item["metadata"]["name"] for item in found} == served
    assert all(item["status"]["conditions"][0]["reason"] == "Local" for item in found)
    assert (await http.delete(f"{path}/v1.apps")).code == 501
    table = (await http.get(f"{path}/v1.", accept=TABLE)).body
    assert table["rows"][0]["cells"][:3] == ["v1.", "Local", "True"]
    queues = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    for kind in ("queues", "podgroups", "topologies", "reservations"):
        await http.delete(f"{queues}/{kind}.scheduling.gpusched.io")
    await http.until(f"{path}/v1alpha1.scheduling.gpusched.io", 404)
