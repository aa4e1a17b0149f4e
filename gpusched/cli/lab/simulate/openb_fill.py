"""``gpusched simulate --openb NODES PODS --fill``: the published fill, beside the published policies."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Final

from gpusched.base.errors import UsageError
from gpusched.cli.command import print_json, table
from gpusched.cli.lab.simulate.inputs import check_belonging
from gpusched.lab.experiments.openb_fill import POLICIES, FillResult, fill_hosts
from gpusched.lab.simulate.traces.openb import PUBLISHED, read_hosts, read_requests

SHOWN: Final = (50, 90, 100, 110, 120, 130)
NAMES: Final = ("random", "dot product", "clustering", "packing", "best fit", "FGD")


def run_fill(arguments: argparse.Namespace) -> int:
    """Fill the hosts with the list's pods, without times, under each of our policies.

    Raises:
        UsageError: it was asked for with something else than an openb list.
        ConfigError: a file cannot be read.
    """
    if arguments.openb is None:
        raise UsageError("--fill goes with --openb NODES PODS")
    if arguments.config or arguments.sets or arguments.report or arguments.span:
        raise UsageError("--fill compares ways to choose nodes; it takes no other configuration")
    if arguments.step:
        raise UsageError("--step does not go with --fill: its pods have no times")
    check_belonging(arguments, fill=True)
    if arguments.nodes or arguments.first:
        raise UsageError("--nodes and --first do not go with --fill: it takes all hosts and pods")
    hosts = read_hosts(Path(arguments.openb[0]))
    requests = read_requests(Path(arguments.openb[1]))
    fills: dict[str, FillResult] = {}
    for name, policy in POLICIES.items():
        print(f"filling: {name}", file=sys.stderr)
        fills[name] = fill_hosts(hosts, requests, policy, seed=arguments.seed)
    published = _published(arguments.openb[1])
    if arguments.output == "json":
        print_json(_json(fills, published))
        return 0
    print(f"{arguments.openb[1]}: GPUs allocated, percent, by percent of them asked for")
    heads = ["policy", *(f"at {at} %" for at in SHOWN)]
    rows = [[name, *(f"{one.allocated[at]:.1f}" for at in SHOWN)] for name, one in fills.items()]
    empty = [""] * (len(SHOWN) - 1)
    rows += [[f"{name} (published)", *empty, f"{each:.1f}"] for name, each in published.items()]
    print(table([heads, *rows]))
    return 0


def _published(path: str) -> dict[str, float]:
    """Of the list that the file's name tells; nothing where it tells none."""
    name = next((name for name in PUBLISHED if name in Path(path).name), "")
    return dict(zip(NAMES, PUBLISHED[name], strict=True)) if name else {}


def _json(fills: dict[str, FillResult], published: dict[str, float]) -> dict[str, Any]:
    return {
        "fills": [
            {
                "policy": name,
                "allocatedPercentByArrivedPercent": dict(one.allocated),
                "placed": one.placed,
                "dropped": one.dropped,
            }
            for name, one in fills.items()
        ],
        "publishedPercentAt130": published,
    }
