"""Binds pods to nodes in turn without any scheduler: ``python -m benchmarks.raw_binds F N``.

The same client, the same requests and as many at once as the daemon sends; nothing is watched,
decided or checked.
"""

from __future__ import annotations

import asyncio
import json
import sys
from itertools import count

from benchmarks.cluster import PODS
from gpusched.api.meta.identity import UID, ObjectKey
from gpusched.api.serializer import requests
from gpusched.base import limits
from gpusched.base.clock import SystemClock
from gpusched.io.client.api_client import ApiClient
from gpusched.io.write.bind_calls import SERVER_QUERY


async def bind_all(kubeconfig: str, nodes: int) -> None:
    """Bind every pod that there is.

    Raises:
        RuntimeError: the server refused one.
    """
    api = await ApiClient.connect(kubeconfig, clock=SystemClock())
    answer = await api.request("GET", PODS, timeout_s=limits.LIST_TIMEOUT_S)
    pods = json.loads(answer.body)["items"][::-1]
    turn = count()

    async def work() -> None:
        while pods:
            await _bind(api, pods.pop()["metadata"], f"node-{next(turn) % nodes:05d}")

    await asyncio.gather(*(work() for _ in range(limits.BINDS_IN_FLIGHT_MAX)))
    await api.close()


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
    asyncio.run(bind_all(sys.argv[1], int(sys.argv[2])))
