"""A cluster in a process of its own, filled over HTTP, and the daemon in another."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

import attrs

from benchmarks.inputs import NAMESPACE, Obj, node
from gpusched.base import limits
from gpusched.base.clock import SystemClock
from gpusched.io.client.api_client import ApiClient

PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
COMMAND: Final = str(Path(sys.executable).with_name("gpusched"))
_READY_S: Final = 30.0
_SILENCE_S: Final = 60.0


@attrs.frozen
class Cluster:
    """A running one.

    Attributes:
        kubeconfig: path of the file.
        api: the product's own client, in this process.
        server: its process, see ``benchmarks.server``; None of a cluster that is not ours.
    """

    kubeconfig: str
    api: ApiClient
    server: subprocess.Popen[str] | None = None

    @contextmanager
    def child(self, command: list[str]) -> Iterator[None]:
        """A process beside the cluster."""
        with running(command):
            yield

    @contextmanager
    def daemon(self) -> Iterator[None]:
        """The whole daemon in its own process."""
        with daemon_process(self.kubeconfig):
            yield

    async def create(self, path: str, objects: Iterable[Obj]) -> None:
        """Create objects, many at once.

        Raises:
            RuntimeError: the server refused one.
        """
        queue = list(objects)[::-1]

        async def work() -> None:
            while queue:
                await self.post(path, queue.pop())

        await asyncio.gather(*(work() for _ in range(limits.BINDS_IN_FLIGHT_MAX)))

    async def post(self, path: str, obj: Obj) -> Obj:
        """Create one object and return the server's answer.

        Raises:
            RuntimeError: the server refused.
        """
        body = json.dumps(obj).encode()
        answer = await self.api.request("POST", path, body=body, timeout_s=_SILENCE_S)
        if not answer.ok:
            raise RuntimeError(f"{path}: {answer.body[:500]!r}")
        created: Obj = json.loads(answer.body)
        return created

    def slow(self) -> None:
        """Take writes no faster than ``writes_a_second`` from now on."""
        assert self.server is not None
        assert self.server.stdin is not None
        print("slow", file=self.server.stdin, flush=True)

    async def bound(self, count: int) -> list[float]:
        """Wait until so many pods are bound; the monotonic times of all bindings, in order.

        Raises:
            TimeoutError: that took longer than a minute.
        """
        assert self.server is not None
        to, come = self.server.stdin, self.server.stdout
        assert to is not None
        assert come is not None
        print(count, file=to, flush=True)
        line = await asyncio.wait_for(asyncio.to_thread(come.readline), _SILENCE_S)
        times: list[float] = json.loads(line)
        return times


@asynccontextmanager
async def cluster(
    *, nodes: int, make: Callable[[int], Obj] = node, writes_a_second: float = 0.0
) -> AsyncIterator[Cluster]:
    """An embedded cluster of fake nodes without stages, and a client.

    Args:
        nodes: how many.
        make: each by its index.
        writes_a_second: what it takes at most, once ``Cluster.slow`` was called.
    """
    with tempfile.TemporaryDirectory(prefix="gpusched-bench-") as folder:
        kubeconfig = str(Path(folder) / "kubeconfig")
        command = [sys.executable, "-m", "benchmarks.server", kubeconfig, str(writes_a_second)]
        with running(command) as process:
            assert process.stdout is not None
            line = await asyncio.wait_for(asyncio.to_thread(process.stdout.readline), _READY_S)
            if not line.startswith("ready"):
                raise RuntimeError(f"the cluster did not start: {line!r}")
            api = await ApiClient.connect(kubeconfig, clock=SystemClock())
            try:
                here = Cluster(kubeconfig, api, process)
                await here.post("/api/v1/namespaces", _namespace())
                await here.create("/api/v1/nodes", (make(index) for index in range(nodes)))
                yield here
            finally:
                await api.close()


def _namespace() -> Obj:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}


@contextmanager
def daemon_process(kubeconfig: str) -> Iterator[subprocess.Popen[str]]:
    """The whole daemon in its own process, for those who look at it from outside."""
    command = [
        COMMAND, "run", "--kubeconfig", kubeconfig, "--listen", "none", "--view", "none",
        "--log-level", "warning",
    ]  # fmt: skip
    with running(command) as process:
        yield process


def cpu_s(pid: int) -> float:
    """Seconds of CPU that a process has used, in user and kernel mode."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mib(pid: int) -> float:
    """Resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def peak_mib(pid: int) -> float:
    """Most resident memory of a process and its children so far, MiB."""
    most = 0.0
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            most = int(line.split()[1]) / 1024
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return most + sum(peak_mib(int(child)) for child in children)


@contextmanager
def running(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A child process; what it says on standard error is shown when this fails."""
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        ) as process,
    ):
        try:
            yield process
        except Exception:
            log.seek(0)
            sys.stderr.write(log.read())
            raise
        finally:
            process.terminate()
            process.wait()
