"""Names of statistics, so that a file with another one is refused before anything runs."""

from __future__ import annotations

import re
from typing import Final

from gpusched.config.tree import listed, nearest

FUNCTIONS: Final = ("mean", "median", "p90", "p95", "p99", "min", "max", "sum", "count")
OF_JOBS: Final = ("wait", "admission", "dispatch", "startup", "run", "completion", "idle")
"""Values of each job, that a function makes one number of."""
OF_THE_RUN: Final = (
    "makespan", "jobs", "completed", "failed", "evictions", "lostGpuHours", "gpuUse", "cpuUse",
    "gpuUseBusy", "cpuUseBusy", "fragmentation", "fairness", "partialGangSeconds", "waitOverFifo",
    "makespanOverBound",
)  # fmt: skip
_CALL: Final = re.compile(r"(?P<function>\w+)\((?P<value>\w+)\)")


def fault_of(name: str) -> str:
    """What is wrong with the name of a statistic; empty for nothing."""
    if name in OF_THE_RUN:
        return ""
    call = _CALL.fullmatch(name)
    if call is None:
        some = f"a function of a value such as p95(wait), or one of {listed(OF_THE_RUN)}"
        return f"write {some}{nearest(name, OF_THE_RUN)}"
    function, value = call["function"], call["value"]
    if function not in FUNCTIONS:
        return f"the functions are {listed(FUNCTIONS)}{nearest(function, FUNCTIONS)}"
    if value not in OF_JOBS:
        return f"the values of jobs are {listed(OF_JOBS)}{nearest(value, OF_JOBS)}"
    return ""
