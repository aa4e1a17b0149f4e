"""An embedded cluster that changes pods as fast as they are read: for ``benchmarks.fanout``.

``python -m benchmarks.fanout_server PODS`` says host, port and version; a line with a number on
standard input makes so many changes and is answered with the monotonic time at which they began.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Final
from urllib.parse import urlsplit

from benchmarks.inputs import NAMESPACE, pod
from gpusched.devcluster.cluster import ClusterOptions, DevCluster, start

_TURN: Final = 64


def _fill(cluster: DevCluster, count: int) -> list[str]:
    meta = {"name": NAMESPACE}
    cluster.client.create("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
    names = [f"pod-{index:05d}" for index in range(count)]
    for name in names:
        cluster.client.create("pods", pod(name))
    return [f"{NAMESPACE}/{name}" for name in names]


async def _change(cluster: DevCluster, keys: list[str], count: int) -> None:
    """Write straight to the store: what a write costs is another figure."""
    pods = cluster.core.store.collection("pods")
    for number in range(count):
        stored = pods.get(keys[number % len(keys)])
        assert stored is not None
        meta = {**stored.obj["metadata"], "annotations": {"turn": str(number)}}
        pods.write(keys[number % len(keys)], {**stored.obj, "metadata": meta})
        if number % _TURN == _TURN - 1:
            await asyncio.sleep(0)


async def serve(count: int) -> None:
    """Serve until standard input ends."""
    cluster = await start(ClusterOptions(stages=False, controllers=False))
    keys = _fill(cluster, count)
    where = urlsplit(cluster.url)
    print(where.hostname, where.port, cluster.core.store.version, flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        print(time.monotonic(), flush=True)
        await _change(cluster, keys, int(line))
    await cluster.close()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
