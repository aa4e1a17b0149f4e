"""What an answer of ``when`` costs on 1,000 nodes with 8,000 running pods: each part of it, in CPU seconds."""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.figures import Figure, middle
from gpusched.advice.start_answer import StartKind
from gpusched.advice.submission.answer import SubmissionAnswer, answer_submission
from gpusched.advice.submission.manifests import read_manifests
from gpusched.advice.trial import TrialCluster
from gpusched.api.meta.gpu_resources import gpu_resources_in_force
from gpusched.base.limits import LIST_PAGE
from gpusched.config.model import DEFAULT
from gpusched.engine.objects import Obj, plural_of
from gpusched.engine.schedulers.scheduler import StoppedClock
from gpusched.io.client.api_client import ApiResponse
from gpusched.io.observe.process_limits import collect_garbage_rarely
from gpusched.io.recordings.snapshot_reader import take_snapshot
from gpusched.io.watch.informers import KINDS
from tests.advice.clusters import NOW, gang, node, queue, write_file
from tests.advice.submission.manifests import group, job, template
from tests.advice.submission.promises import keep_promise, situations_of

NODES: Final = 1_000
FREE: Final = 40
PODS: Final = 8_000
PODS_A_GANG: Final = 8
RUNS: Final = 5
NOW_MAX_S: Final = 1.0
PROMISES: Final = 200
PROMISES_IN_SITUATIONS: Final = 100
PROMISES_IN_SHARDS: Final = 16
"""Each takes half a minute: daemons of shards look at their board once a second."""
KEPT_MIN: Final = 95


def measure() -> list[Figure]:
    """Reading, the trial, an answer where the start is now, one where it is not, and the plain command."""
    collect_garbage_rarely()  # as the process beside the daemon does
    objects = cluster_objects()
    with gpu_resources_in_force(DEFAULT.gpu_resources):
        server = _CannedServer(objects)
        read = [_cpu_s(lambda: asyncio.run(server.snapshot())) for _ in range(3)]
        built = [_cpu_s(lambda: _trial(objects)) for _ in range(RUNS)]
        trial = _trial(objects)
        fits, waits = _documents(FREE), _documents(FREE + 1)
        first = _cpu_s(lambda: _answer(trial, fits, StartKind.NOW))
        now = [_cpu_s(lambda: _answer(trial, fits, StartKind.NOW)) for _ in range(RUNS)]
        whole = [_cpu_s(lambda: _read_and_answered(server, fits)) for _ in range(3)]
        later = [_cpu_s(lambda: _answer(trial, waits, StartKind.EXPECTED)) for _ in range(3)]
    what = f"when, {NODES:,} nodes, {PODS:,} pods: "
    return [
        _figure(f"{what}the API server's lists are read", read),
        _figure(f"{what}a trial cluster is built", built),
        _figure(f"{what}the first answer, start now", [first], most=NOW_MAX_S),
        _figure(f"{what}each other answer, start now", now, most=NOW_MAX_S),
        _figure(f"{what}read, built and answered, start now", whole, most=NOW_MAX_S),
        _figure(f"{what}an answer by playing forward", later),
        _figure(f"{what}the plain command on a snapshot file", _commands(objects)),
    ]


def measure_promises() -> list[Figure]:
    """How many promises are kept: asked, submitted to a daemon on an embedded cluster, and watched."""
    return [
        _promises_kept("", range(PROMISES), lambda _seed: ()),
        _promises_kept(" in situations", range(PROMISES_IN_SITUATIONS), situations_of),
        *(
            _promises_kept(
                f" in two shards that {idle}", range(PROMISES_IN_SHARDS), lambda _seed: (),
                shards=(idle, idle),
            )
            for idle in ("keep", "lend")
        ),
    ]  # fmt: skip


def _promises_kept(
    where: str,
    seeds: range,
    situations: Callable[[int], Sequence[str]],
    *,
    shards: Sequence[str] = (),
) -> Figure:
    kept, asked = Counter[str](), Counter[str]()
    for seed in seeds:
        promise = keep_promise(seed, situations(seed), shards=shards)
        kind = "never" if promise.promised.never else str(promise.promised.start.kind)
        asked[kind] += 1
        kept[kind] += not promise.fault
        if promise.fault:
            print(f"seed {seed}{where}: {promise.fault}", file=sys.stderr)
    share = 100 * kept.total() / asked.total()
    each = ", ".join(f"{kind} {kept[kind]} of {count}" for kind, count in sorted(asked.items()))
    return Figure(
        name=f"when{where}, promises that are kept of {asked.total()}", measured=share, unit="%",
        spread=each, target=f">= {KEPT_MIN} %", met=share >= KEPT_MIN,
    )  # fmt: skip


def cluster_objects() -> list[Obj]:
    """Nodes of eight GPUs in racks of twenty, all but some of them full of gangs that end one by one."""
    objects: list[Obj] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}},
        queue("a"), queue("b"),
        *(node(f"n{each:04}", rack=f"r{each // 20:03}") for each in range(NODES)),
    ]  # fmt: skip
    busy = NODES - FREE
    for number in range(PODS // PODS_A_GANG):
        gpus = 1 if number < busy else 0  # what is more than GPUs are needs none
        objects += gang(
            f"g{number:04}", PODS_A_GANG, gpus, on=[f"n{number % busy:04}"] * PODS_A_GANG,
            queue="ab"[number % 2], expectedDuration=f"{4 + number % 40}h",
        )  # fmt: skip
    return objects


class _CannedServer:
    """Answers lists as an API server does, in pages that were written before.

    Args:
        objects: that it has.
    """

    def __init__(self, objects: list[Obj]) -> None:
        self._pages: dict[tuple[str, str], bytes] = {}
        for plural, path in KINDS.items():
            items = [obj for obj in objects if plural_of(obj) == plural]
            for first in range(0, len(items) or 1, LIST_PAGE):
                last = first + LIST_PAGE
                more = str(last) if last < len(items) else ""
                page = {
                    "metadata": {"resourceVersion": "1", "continue": more},
                    "items": items[first:last],
                }
                self._pages[path, str(first) if first else ""] = json.dumps(page).encode()

    async def snapshot(self) -> list[Obj]:
        """What ``when`` reads, as objects."""
        recording = await take_snapshot(self, now=NOW)  # type: ignore[arg-type]
        return [json.loads(line) for lines in recording.lines.values() for line in lines]

    async def server_version(self) -> str:
        """Some version."""
        return "v1.36.2"

    async def request(
        self, _method: str, path: str, *, query: Mapping[str, str], timeout_s: float
    ) -> ApiResponse:
        """A page of a list."""
        del timeout_s
        body = self._pages.get((path, query.get("continue", "")))
        return ApiResponse(404 if body is None else 200, {}, body or b"{}")


def _trial(objects: list[Obj]) -> TrialCluster:
    return TrialCluster(objects, DEFAULT, now=NOW, clock=StoppedClock())


def _read_and_answered(server: _CannedServer, raw: bytes) -> None:
    """What a question costs the process beside the daemon when its copy of the cluster is too old."""
    _answer(_trial(asyncio.run(server.snapshot())), raw, StartKind.NOW)


def _documents(pods: int) -> bytes:
    labelled = template(labels={"gpusched.io/pod-group": "new"})
    return "\n---\n".join(map(json.dumps, (group(pods), job(pods, template_=labelled)))).encode()


def _answer(trial: TrialCluster, raw: bytes, kind: StartKind) -> SubmissionAnswer:
    """An answer; another kind of start would be something else that is measured."""
    answer = answer_submission(
        trial, read_manifests(raw, "job.yaml"), namespace="team", better=False
    )
    (found,) = answer.gangs
    if found.start.kind is not kind:
        raise RuntimeError(f"it starts {found.start.kind}, not {kind}: {found.start.message}")
    return answer


def _commands(objects: list[Obj]) -> list[float]:
    """CPU seconds of the command, imports and reading included."""
    with tempfile.TemporaryDirectory() as folder:
        cluster = write_file(Path(folder) / "cluster.json", objects)
        file = Path(folder) / "job.yaml"
        file.write_bytes(_documents(FREE))
        command = [
            sys.executable, "-m", "gpusched.cli.main", "when", "-f", str(file), "-n", "team",
            "--snapshot", str(cluster),
        ]  # fmt: skip
        times = []
        for _ in range(3):
            before = _children_s()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            times.append(_children_s() - before)
    return times


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _cpu_s(act: Callable[[], object]) -> float:
    began = time.process_time()
    act()
    return time.process_time() - began


def _figure(name: str, runs: list[float], *, most: float | None = None) -> Figure:
    cost, spread = middle(runs)
    return Figure(
        name=name, measured=cost, unit="CPU s", spread=spread,
        target="" if most is None else f"<= {most:g} CPU s",
        met=None if most is None else cost <= most,
    )  # fmt: skip
