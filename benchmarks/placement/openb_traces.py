"""The openb trace: hosts with GPUs, lists of single pods, and how a list becomes arrivals."""

from __future__ import annotations

import csv
import gzip
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs

LISTS: Final = ("default", "cpu200", "gpushare100", "gpuspec33", "multigpu50")
FOLDER: Final = Path(__file__).resolve().parents[3] / "shared" / "traces"
WHOLE: Final = 1000
ARRIVED: Final = 130
"""Requests arrive until they reach so many percent of the GPUs."""
TYPICAL: Final = 95
"""The most frequent shapes are typical until they make up so many percent of a list."""


class TraceMissing(Exception):
    """A file of the trace is not where it was looked for, or cannot be read."""


@attrs.frozen
class Host:
    """One node: thousandths of a CPU, MiB, GPUs and their model."""

    name: str
    cpu: int
    memory: int
    gpus: int
    model: str


@attrs.frozen(order=True)
class Request:
    """One pod: thousandths of a CPU, MiB, GPUs, thousandths of each, accepted models (all: none)."""

    cpu: int
    memory: int
    gpus: int
    part: int
    models: tuple[str, ...] = ()

    @property
    def demand(self) -> int:
        """Thousandths of GPUs in all."""
        return self.gpus * self.part

    @property
    def kind(self) -> int:
        """What clustering keeps together: the number of GPUs, 0 for any part of one."""
        return self.gpus if self.part == WHOLE else 0

    @property
    def shape(self) -> Request:
        """The same without memory: what popularity is counted by."""
        return attrs.evolve(self, memory=0)


def read_hosts(folder: Path = FOLDER) -> list[Host]:
    """The hosts that have GPUs, sorted by name.

    Raises:
        TraceMissing: see there.
    """
    rows = _rows(folder / "openb_nodes.csv.gz")
    hosts = [
        Host(
            row["sn"], int(row["cpu_milli"]), int(row["memory_mib"]), int(row["gpu"]), row["model"]
        )
        for row in rows
    ]
    return sorted((host for host in hosts if host.gpus), key=lambda host: host.name)


def read_requests(name: str, folder: Path = FOLDER) -> list[Request]:
    """One list of pods, in the order of its file.

    Raises:
        TraceMissing: see there.
    """
    return [
        Request(
            int(row["cpu_milli"]),
            int(row["memory_mib"]),
            int(row["num_gpu"]),
            int(row["gpu_milli"]),
            tuple(sorted(set(filter(None, (row.get("gpu_spec") or "").split("|"))))),
        )
        for row in _rows(folder / f"openb_pods_{name}.csv.gz")
    ]


def _rows(path: Path) -> list[dict[str, str]]:
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))
    except OSError as error:
        raise TraceMissing(
            f"the openb trace cannot be read from {path} ({error.strerror or error}); "
            f"give its folder in OPENB_TRACES"
        ) from error


def arrivals(
    requests: Sequence[Request], *, capacity: int, rng: random.Random, percent: int = ARRIVED
) -> list[Request]:
    """A shuffled list, with random picks appended, or cut, where requests reach so much demand.

    Args:
        requests: the list.
        capacity: of all hosts, thousandths of GPUs.
        rng: seeded.
        percent: of the capacity.
    """
    shuffled = list(requests)
    rng.shuffle(shuffled)
    arriving: list[Request] = []
    demand = 0
    while demand * 100 < percent * capacity:
        at = len(arriving)
        request = shuffled[at] if at < len(shuffled) else rng.choice(requests)
        arriving.append(request)
        demand += request.demand
    return arriving


def typical(requests: Sequence[Request], *, percent: int = TYPICAL) -> list[tuple[Request, int]]:
    """The most frequent shapes with their numbers, until they make up so much of the list."""
    counts = Counter(request.shape for request in requests)
    chosen: list[tuple[Request, int]] = []
    seen = 0
    for shape, count in sorted(counts.items(), key=lambda each: (-each[1], each[0])):
        chosen.append((shape, count))
        seen += count
        if seen * 100 >= percent * len(requests):
            break
    return chosen
