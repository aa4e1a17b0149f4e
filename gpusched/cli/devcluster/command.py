"""``gpusched devcluster``: an embedded cluster for newcomers, plug-in authors and CI."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gpusched.base.errors import GpuschedError, UsageError
from gpusched.devcluster.apimachinery.limits import CLOCK_RATE_MAX
from gpusched.devcluster.cluster import ClusterOptions, DevCluster, start
from gpusched.devcluster.control.adjustable_clock import AdjustableClock
from gpusched.devcluster.control.fault_file import load_faults
from gpusched.devcluster.registry.gangs.features import RELEASES, read_features

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001


_GARBAGE_PERIOD = 20_000
"""New containers between two looks for cycles: a quarter more writes a second than by default."""


def register(subparsers: Subparsers) -> None:
    """Add the command to the program's parser."""
    parser = subparsers.add_parser(
        "devcluster",
        help="an embedded API server with fake nodes",
        description="Serve an embedded Kubernetes API with fake nodes and this project's "
        "CustomResourceDefinitions until a signal comes.",
    )
    parser.add_argument("--port", type=int, default=0, help="TCP port; 0 takes any free one")
    parser.add_argument(
        "--kubeconfig",
        type=Path,
        default=Path("gpusched-devcluster.kubeconfig"),
        metavar="F",
        help="file to write the kubeconfig to (default: %(default)s)",
    )
    parser.add_argument(
        "--apply",
        type=Path,
        nargs="+",
        action="extend",
        default=[],
        metavar="PATH",
        help="YAML files or folders to apply before the cluster is ready",
    )
    parser.add_argument(
        "--speed",
        type=float,
        default=1.0,
        metavar="N",
        help="let the cluster's clock run so many times as fast",
    )
    parser.add_argument(
        "--paused", action="store_true", help="start with the cluster's clock standing still"
    )
    parser.add_argument(
        "--faults",
        type=Path,
        metavar="FILE",
        help="fault rules in force from the start: a FaultSchedule",
    )
    parser.add_argument(
        "--no-stages", action="store_true", help="leave nodes and pods as clients write them"
    )
    parser.add_argument(
        "--stages",
        type=Path,
        nargs="+",
        action="extend",
        default=[],
        metavar="PATH",
        help="files or folders of KWOK Stages that replace the default ones",
    )
    parser.add_argument(
        "--host-names",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME",
        help="names besides localhost under which clients reach it, as through a tunnel",
    )
    parser.add_argument(
        "--kubernetes-gangs",
        choices=["off", *RELEASES],
        default="off",
        help="serve Kubernetes' own gangs as this release does, all their gates on "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--feature-gates",
        default="",
        metavar="NAME=true|false,...",
        help="switch single gates of gangs, as for kube-apiserver",
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of uids, names and delays")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command; returns the exit status."""
    if not 0 <= args.port <= 65535:
        raise UsageError(f"--port takes 0 to 65535, not {args.port}")
    if not 0 < args.speed <= CLOCK_RATE_MAX:
        raise UsageError(f"--speed takes a number above 0 and up to {CLOCK_RATE_MAX:g}")
    if args.stages and args.no_stages:
        raise UsageError("--stages and --no-stages exclude each other")
    options = ClusterOptions(
        port=args.port,
        host_names=args.host_names,
        apply=args.apply,
        stages=not args.no_stages,
        stage_files=args.stages,
        seed=args.seed,
        gangs=read_features(args.kubernetes_gangs, args.feature_gates),
        faults=load_faults(args.faults) if args.faults else (),
        clock=AdjustableClock(args.speed, paused=args.paused),
    )
    return asyncio.run(_serve(options, args.kubeconfig.resolve()))


async def _serve(options: ClusterOptions, kubeconfig: Path) -> int:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    try:
        cluster = await start(options)
    except OSError as e:
        if e.filename is not None:
            raise UsageError(f"{e.filename} cannot be read: {e.strerror}") from None
        raise UsageError(f"cannot listen on port {options.port}: {e.strerror}") from None
    try:
        # Objects of the cluster are trees that die by themselves; what was loaded stays.
        gc.freeze()
        gc.set_threshold(_GARBAGE_PERIOD, 20, 50)
        _write_private(kubeconfig, cluster)
        with contextlib.suppress(BrokenPipeError):
            print(f"ready {cluster.url}", flush=True)
        print(f"export KUBECONFIG={kubeconfig}", file=sys.stderr)
        failed = asyncio.create_task(cluster.failed())
        waiting = asyncio.create_task(stopped.wait())
        done, pending = await asyncio.wait({failed, waiting}, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        if failed in done:
            raise GpuschedError(f"a part of the embedded cluster stopped: {failed.result()}")
    finally:
        await cluster.close()
    return 0


def _write_private(path: Path, cluster: DevCluster) -> None:
    """Write the kubeconfig readable by its owner alone: it carries the admin's token."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(cluster.kubeconfig_text)
    except OSError as e:
        why = f"cannot write the kubeconfig {path}: {e.strerror}; name another with --kubeconfig"
        raise UsageError(why) from None
