"""``python -m benchmarks``: measure, print one table, exit 1 when a promise is not kept or a part could not be measured."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable
from typing import Final

from benchmarks import (
    binding,
    cache,
    change,
    cycles,
    decide,
    devcluster,
    device_writes,
    devices,
    drain,
    fanout,
    flood,
    growth,
    history,
    latency,
    month,
    native_gangs,
    page,
    placement_daemon,
    queues,
    remembers,
    report,
    restart,
    shard_daemons,
    shards,
    victims,
    view,
    virtual_hour,
    virtual_jobs,
    waiting,
    whatif,
    when,
)
from benchmarks.advice import measure as advice
from benchmarks.figures import Figure, as_json, show
from benchmarks.placement import b1, b2, b3, b4, b5, feasibility, openb
from benchmarks.placement.openb_traces import TraceMissing

PARTS: Final[dict[str, Callable[[], list[Figure]]]] = {
    "advice": advice.measure,
    "binding": binding.measure,
    "decide": decide.measure,
    "cache": cache.measure,
    "change": change.measure,
    "cycles": cycles.measure,
    "drain": drain.measure,
    "latency": latency.measure,
    "queues": queues.measure,
    "report": report.measure,
    "restart": restart.measure,
    "devcluster": devcluster.measure,
    "shard-daemons": shard_daemons.measure,
    "shards": shards.measure,
    "devcluster-fanout": fanout.measure,
    "victims": victims.measure,
    "view": view.measure,
    "page": page.measure,
    "native-gangs": native_gangs.measure,
    "devices": devices.measure,
    "device-writes": device_writes.measure,
    "waiting": waiting.measure,
    "when": when.measure,
    "when-promises": when.measure_promises,
    "month": month.measure,
    "what-if": whatif.measure,
    "flood": flood.measure,
    "growth": growth.measure,
    "history": history.measure,
    "memory": remembers.measure,
    "placement-daemon": placement_daemon.measure,
    "devcluster-hour": virtual_hour.measure,
    "virtual-jobs": virtual_jobs.measure,
    "placement-b1": b1.measure,
    "placement-b2": b2.measure,
    "placement-b3": b3.measure,
    "placement-b4": b4.measure,
    "placement-b5": b5.measure,
    "placement-feasibility": feasibility.measure,
    "placement-openb": openb.measure,
}
ONLY_WHEN_NAMED: Final = (
    "advice", "placement-openb", "history", "page", "month", "what-if", "when-promises", "shards",
)  # fmt: skip
"""A quarter of an hour; the same, and a trace that is not part of this repository; a million runs; a browser;
a month of 100,000 jobs; two months of 1,000 nodes; hours of 200 clusters; five clusters of 20,000 nodes."""


def main() -> int:
    """Run what was asked for; 1 when a figure misses its target."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--only", choices=PARTS, action="append", help="measure this part; may be repeated"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args()
    figures, failed, without_trace = list[Figure](), list[str](), False
    for name in arguments.only or [each for each in PARTS if each not in ONLY_WHEN_NAMED]:
        began = time.monotonic()
        try:
            figures += PARTS[name]()
        except TraceMissing as error:
            print(f"{name}: {error}", file=sys.stderr)
            without_trace = True
            continue
        except Exception:  # noqa: BLE001 - hours of others are not lost by one
            traceback.print_exc()
            failed.append(name)
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    if arguments.json:
        print(as_json(figures))
    else:
        show(figures)
    missed = [each.name for each in figures if each.met is False]
    for name in missed:
        print(f"missed: {name}", file=sys.stderr)
    for name in failed:
        print(f"not measured: {name}", file=sys.stderr)
    return int(bool(missed or failed or without_trace))


if __name__ == "__main__":
    sys.exit(main())
