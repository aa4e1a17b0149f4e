"""An embedded cluster that notes when each pod was bound: ``python -m benchmarks.server F [RATE]``.

With a rate it takes so many writes a second at most, as a real API server does.

A line with a number on standard input is answered, once so many pods are bound, with a line of
JSON: the monotonic times of all bindings. Times are taken where the write happens, so they hold
however busy the readers are; the clock is the same for all processes of a machine.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

from gpusched.devcluster.apiserver.endpoints.messages import ApiAnswer, ApiRequest
from gpusched.devcluster.cluster import ClusterOptions, DevCluster, start
from gpusched.devcluster.http.handler_chain import HandlerChain


class Bindings:
    """When pods were bound, in the order in which it happened."""

    def __init__(self, cluster: DevCluster) -> None:
        kind = cluster.core.registry.named("pods")
        self._pods = cluster.core.store.collection(kind.storage)
        self._pin = self._pods.pin()
        self.times: list[float] = []
        self.more = asyncio.Event()
        self._pods.listen(self._changed)

    def _changed(self) -> None:
        now = time.monotonic()
        for change in self._pods.since(self._pin.position, 64) or ():
            self._pin.position += 1
            before = change.before
            if before is None or before.obj["spec"].get("nodeName"):
                continue
            if change.after.obj["spec"].get("nodeName"):
                self.times.append(now)
                self.more.set()


class WriteRate:
    """Lets so many writes a second through to a cluster, one after another."""

    def __init__(self, handlers: HandlerChain, rate: float) -> None:
        self._serve = handlers.serve
        self._every = 1 / rate
        self._free_at = 0.0

    async def serve(self, request: ApiRequest) -> ApiAnswer:
        """Answer a request, a write when its turn has come."""
        if request.method != "GET":
            now = time.monotonic()
            self._free_at = max(now, self._free_at) + self._every
            await asyncio.sleep(self._free_at - now)
        return await self._serve(request)


async def serve(kubeconfig: str, rate: float = 0.0) -> None:
    """Serve until standard input ends.

    Args:
        kubeconfig: path of the file to be written.
        rate: writes a second, once the first line came; 0 for as many as the machine can.
    """
    cluster = await start(ClusterOptions(stages=False))
    _write(Path(kubeconfig), cluster.kubeconfig_text)
    bindings = Bindings(cluster)
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        if line.strip() == "slow":
            slow = WriteRate(cluster.handlers, rate)
            cluster.handlers.serve = slow.serve  # type: ignore[method-assign]
            continue
        while len(bindings.times) < int(line):
            bindings.more.clear()
            await bindings.more.wait()
        print(json.dumps(bindings.times), flush=True)
    await cluster.close()


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o600)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], *map(float, sys.argv[2:])))
