"""Binds pods to nodes in turn without any scheduler: ``python -m benchmarks.raw_binds F N [claims]``.

The same client, the same requests and as many at once as the daemon sends; nothing is watched,
decided or checked. With ``claims`` each pod's claim gets its finalizer and devices first.
"""

from __future__ import annotations

import asyncio
import json
import sys
from itertools import count

from benchmarks.cluster import PODS
from benchmarks.device_inputs import API, GPU_DRIVER, NIC_DRIVER
from benchmarks.inputs import NAMESPACE
from gpusched.api.affinity.selector import NodeTerm, Requirement
from gpusched.api.devices.dynamic.claims import (
    SHARE,
    AllocatedDevice,
    ClaimAllocation,
    ClaimConsumer,
    ResourceClaim,
)
from gpusched.api.devices.dynamic.decode import RESOURCE_CLAIMS
from gpusched.api.meta.identity import UID, ObjectKey
from gpusched.api.serializer import requests
from gpusched.api.serializer.device_claims import claim_finalizer_patch, claim_status_patch
from gpusched.base import limits
from gpusched.base.clock import SystemClock
from gpusched.io.client.api_client import MERGE_PATCH, ApiClient
from gpusched.io.write.bind_calls import SERVER_QUERY

_CLAIMS = f"/apis/{API}/namespaces/{NAMESPACE}/resourceclaims"


async def bind_all(kubeconfig: str, nodes: int, *, claims: bool = False) -> None:
    """Bind every pod that there is.

    Raises:
        RuntimeError: the server refused one.
    """
    api = await ApiClient.connect(kubeconfig, clock=SystemClock())
    answer = await api.request("GET", PODS, timeout_s=limits.LIST_TIMEOUT_S)
    pods = json.loads(answer.body)["items"][::-1]
    there: dict[str, ResourceClaim] = {}
    if claims:
        answer = await api.request("GET", _CLAIMS, timeout_s=limits.LIST_TIMEOUT_S)
        page = RESOURCE_CLAIMS.decode_page(answer.body)
        there = {claim.name: claim for claim in page.items if isinstance(claim, ResourceClaim)}
    turn = count()

    async def work() -> None:
        while pods:
            pod, number = pods.pop(), next(turn)
            node = f"node-{number % nodes:05d}"
            for made in pod["status"].get("resourceClaimStatuses", ()):
                claim = there[made["resourceClaimName"]]
                await _allocate(api, claim, pod["metadata"], node, number // nodes)
            await _bind(api, pod["metadata"], node)

    await asyncio.gather(*(work() for _ in range(limits.BINDS_IN_FLIGHT_MAX)))
    await api.close()


async def _allocate(
    api: ApiClient, claim: ResourceClaim, pod: dict[str, str], node: str, number: int
) -> None:
    path = f"{_CLAIMS}/{claim.name}"
    body = claim_finalizer_patch(claim.uid, claim.resource_version, claim.finalizers)
    claim = await _patch(api, path, body)
    devices = tuple(
        AllocatedDevice(request=request, driver=driver, pool=node, device=device, share=share)
        for request, driver, device, share in (
            ("gpu", GPU_DRIVER, f"gpu-{number}", ""),
            ("nic", NIC_DRIVER, f"nic-{number // 4}", SHARE),
        )
    )
    here = NodeTerm(fields=(Requirement("metadata.name", "In", (node,)),))
    user = ClaimConsumer(group="", resource="pods", name=pod["name"], uid=UID(pod["uid"]))
    body = claim_status_patch(
        claim.uid,
        claim.resource_version,
        allocation=ClaimAllocation(devices=devices, nodes=(here,)),
        consumers=[user],
    )
    await _patch(api, f"{path}/status", body)


async def _patch(api: ApiClient, path: str, body: bytes) -> ResourceClaim:
    answer = await api.request(
        "PATCH", path, body=body, content_type=MERGE_PATCH,
        timeout_s=limits.BIND_TIMEOUT_CLIENT_S,
    )  # fmt: skip
    if answer.status != 200:
        raise RuntimeError(f"{path}: {answer.body[:500]!r}")
    return RESOURCE_CLAIMS.entity_of(answer.body)


async def _bind(api: ApiClient, metadata: dict[str, str], node: str) -> None:
    key = ObjectKey(metadata["namespace"], metadata["name"])
    body = requests.binding_body(
        key, UID(metadata["uid"]), node=node, slots=1, rank=-1, plan="0" * 12, fence="bench/1"
    )
    answer = await api.request(
        "POST", f"{PODS}/{key.name}/binding", query=SERVER_QUERY, body=body,
        timeout_s=limits.BIND_TIMEOUT_CLIENT_S,
    )  # fmt: skip
    if answer.status != 201:
        raise RuntimeError(f"{key}: {answer.body[:500]!r}")


if __name__ == "__main__":
    asyncio.run(bind_all(sys.argv[1], int(sys.argv[2]), claims="claims" in sys.argv[3:]))
