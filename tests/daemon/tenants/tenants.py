"""A tenant: a user with the role ``edit`` in one namespace, who speaks to the server over HTTP."""

from __future__ import annotations

import json
from typing import Any

import yaml

from gpusched.base import installed_files
from gpusched.io.client.api_client import ApiClient
from tests.daemon.conftest import Obj, World, pod_spec

RBAC = "rbac.authorization.k8s.io"
MERGE = "application/merge-patch+json"


class Tenant:
    """See the module.

    Attributes:
        namespace: the one where this user may edit.
    """

    def __init__(self, api: ApiClient, namespace: str) -> None:
        self._api = api
        self.namespace = namespace

    async def send(self, method: str, path: str, body: Obj | None = None, **how: Any) -> Obj:
        """A request in the namespace; ``path`` begins behind it or at the root."""
        status, answer = await self.try_to(method, path, body, **how)
        assert status < 300, answer
        return answer

    async def try_to(
        self, method: str, path: str, body: Obj | None = None, *, content_type: str = ""
    ) -> tuple[int, Obj]:
        """The same, whatever comes of it: status and answer."""
        kind = {"content_type": content_type} if content_type else {}
        raw = json.dumps(body).encode() if body is not None else None
        answer = await self._api.request(method, path, body=raw, timeout_s=10.0, **kind)
        return answer.status, json.loads(answer.body)

    def path(self, kind: str, name: str = "", sub: str = "") -> str:
        """Where objects of a kind of this namespace are: ``pods``, ``batch/v1/jobs``."""
        root = f"/apis/{kind.rpartition('/')[0]}" if "/" in kind else "/api/v1"
        plural = kind.rpartition("/")[2]
        parts = [f"{root}/namespaces/{self.namespace}/{plural}", name, sub]
        return "/".join(part for part in parts if part)

    async def pod(self, name: str, *, gpus: int = 0, spec: Obj | None = None, **meta: Any) -> Obj:
        """Create a pod."""
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": self.namespace, **meta},
            "spec": {**pod_spec(gpus), **(spec or {})},
        }
        return await self.send("POST", self.path("pods"), body)

    async def note(self, kind: str, name: str, **annotations: str | None) -> Obj:
        """Patch annotations of ours on an object."""
        notes = {f"gpusched.io/{key}": value for key, value in annotations.items()}
        body = {"metadata": {"annotations": notes}}
        return await self.send("PATCH", self.path(kind, name), body, content_type=MERGE)

    async def group(self, name: str, **spec: Any) -> Obj:
        """Create a PodGroup."""
        body = {
            "apiVersion": "scheduling.gpusched.io/v1alpha1",
            "kind": "PodGroup",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"queue": "default", **spec},
        }
        return await self.send("POST", self.path("scheduling.gpusched.io/v1alpha1/podgroups"), body)

    async def job(
        self, name: str, count: int, *, gpus: int = 8, notes: Obj | None = None, **spec: Any
    ) -> Obj:
        """Create a Job with a queue."""
        body = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": name,
                "namespace": self.namespace,
                "labels": {"gpusched.io/queue": "default"},
                "annotations": notes or {},
            },
            "spec": {
                "parallelism": count,
                "completions": count,
                "template": {
                    "metadata": {"annotations": {"gpusched.io/run-for": "10h"}},
                    "spec": pod_spec(gpus),
                },
                **spec,
            },
        }
        return await self.send("POST", self.path("batch/v1/jobs"), body)


async def tenant(w: World, namespace: str) -> Tenant:
    """A new namespace with an account that may edit there, by the shipped roles too."""
    client = w.client
    if "gpusched-edit" not in w.names(f"clusterroles.{RBAC}"):
        for role in yaml.safe_load_all(
            (installed_files.path("manifests") / "rbac-users.yaml").read_text()
        ):
            client.create(f"clusterroles.{RBAC}", role)
    client.create(
        "namespaces",
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
    )
    head = {"metadata": {"name": "user", "namespace": namespace}}
    client.create("serviceaccounts", {"apiVersion": "v1", "kind": "ServiceAccount", **head})
    client.create(
        f"rolebindings.{RBAC}",
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "RoleBinding",
            **head,
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "edit"},
            "subjects": [{"kind": "ServiceAccount", "name": "user", "namespace": namespace}],
        },
    )
    await w.clock.sleep(1)  # aggregated roles are filled by a controller
    w.write_kubeconfig()
    admin = await ApiClient.connect(str(w.kubeconfig), clock=w.clock)
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/user/token"
    ask = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = await admin.request("POST", path, body=json.dumps(ask).encode(), timeout_s=10.0)
    await admin.close()
    assert answer.ok, answer.body
    token = json.loads(answer.body)["status"]["token"]
    config = yaml.safe_load(w.kubeconfig.read_text())
    config["users"][0]["user"]["token"] = token
    own = w.kubeconfig.with_name(f"kubeconfig-{namespace}")
    own.write_text(yaml.safe_dump(config))
    user = Tenant(await ApiClient.connect(str(own), clock=w.clock), namespace)
    w.closing.append(user._api.close)
    return user
