"""The openb trace as these benchmarks use it: where it lies, and the lists that figures are known of.

What is read and how a list becomes arrivals is the package's own: ``gpusched.lab.simulate.traces.openb``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from gpusched.base.errors import ConfigError
from gpusched.lab.simulate.traces import openb
from gpusched.lab.simulate.traces.openb import (
    ARRIVED,
    PUBLISHED,
    WHOLE,
    TraceHost,
    TracePod,
    pod_arrivals,
    typical_pods,
)

__all__ = [
    "ARRIVED",
    "FOLDER",
    "LISTS",
    "PUBLISHED",
    "WHOLE",
    "TraceHost",
    "TraceMissing",
    "TracePod",
    "pod_arrivals",
    "read_hosts",
    "read_requests",
    "typical_pods",
]  # fmt: skip
LISTS: Final = tuple(PUBLISHED)
FOLDER: Final = Path(__file__).resolve().parents[3] / "shared" / "traces"


class TraceMissing(Exception):
    """A file of the trace is not where it was looked for, or cannot be read."""


def read_hosts(folder: Path = FOLDER) -> list[TraceHost]:
    """The hosts that have GPUs, sorted by name.

    Raises:
        TraceMissing: see there.
    """
    path = folder / "openb_nodes.csv.gz"
    try:
        return openb.read_hosts(path)
    except ConfigError as error:
        raise _missing(path, error) from error


def read_requests(name: str, folder: Path = FOLDER) -> list[TracePod]:
    """One list of pods, in the order of its file.

    Raises:
        TraceMissing: see there.
    """
    path = folder / f"openb_pods_{name}.csv.gz"
    try:
        return openb.read_requests(path)
    except ConfigError as error:
        raise _missing(path, error) from error


def _missing(path: Path, error: ConfigError) -> TraceMissing:
    return TraceMissing(
        f"the openb trace cannot be read from {path} ({error}); give its folder in OPENB_TRACES"
    )
