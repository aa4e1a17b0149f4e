"""An embedded cluster that notes when each pod was bound: ``python -m benchmarks.server F``.

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

from gpusched.devcluster.cluster import ClusterOptions, DevCluster, start


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


async def serve(kubeconfig: str) -> None:
    """Serve until standard input ends."""
    cluster = await start(ClusterOptions(stages=False))
    _write(Path(kubeconfig), cluster.kubeconfig_text)
    bindings = Bindings(cluster)
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        while len(bindings.times) < int(line):
            bindings.more.clear()
            await bindings.more.wait()
        print(json.dumps(bindings.times), flush=True)
    await cluster.close()


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o600)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
