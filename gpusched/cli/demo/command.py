"""``gpusched demo``: gangs start as a whole, and wait as a whole, in under a minute."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import shlex
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Final

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from gpusched.base import installed_files
from gpusched.base.clock import SystemClock
from gpusched.base.errors import UsageError
from gpusched.cli.command import Subparsers, check_output_file, named_path
from gpusched.cli.demo.play import DemoOptions, DemoPlay, running_demo, shipped_steps
from gpusched.cli.demo.scene import ClusterScene, DemoOutcome
from gpusched.cli.demo.slot_picture import svg
from gpusched.cli.demo.view import finale, headline, news, screen, tables, totals
from gpusched.io.observe.logs import set_up_logging

_SECONDS: Final = 45.0
_SECONDS_MAX: Final = 3600.0
_FRAME_S: Final = 0.1
_PLAIN_WIDTH: Final = 100
_SVG_WIDTH: Final = 104
_INTERRUPTED: Final = 130


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = subparsers.add_parser(
        "demo",
        description="Start an embedded cluster of 16 fake nodes with 8 GPUs each and the real "
        "daemon on it, submit queues and jobs as YAML, and show gangs that start and gangs that "
        "wait. Exit status 1 when a gang that fits did not start, or one started in part.",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=_SECONDS,
        metavar="N",
        help="wait so long for gangs to start (default: %(default)g)",
    )
    parser.add_argument(
        "--keep", action="store_true", help="keep cluster and daemon running until Ctrl-C"
    )
    parser.add_argument(
        "--svg", type=named_path, metavar="FILE", help="also write the fullest moment as a drawing"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the demo; 0 when it kept its promise, 1 when not.

    Raises:
        GpuschedError: a part of it broke.
        UsageError: an option that makes no sense.
    """
    if not 0 < arguments.seconds <= _SECONDS_MAX:
        raise UsageError(f"--seconds takes a number above 0 and up to {_SECONDS_MAX:g}")
    check_output_file("--svg", arguments.svg)
    folder = Path(tempfile.mkdtemp(prefix="gpusched-demo-"))
    log = folder / "daemon.log"
    with log.open("w", encoding="utf-8") as stream:
        set_up_logging(level=logging.INFO, stream=stream)
        try:
            return asyncio.run(_show(arguments, folder))
        finally:
            (folder / "kubeconfig").unlink(missing_ok=True)
            print(f"\nThe daemon's log: {log}")


async def _show(arguments: argparse.Namespace, folder: Path) -> int:
    console = Console(
        width=None if sys.stdout.isatty() else _PLAIN_WIDTH, highlight=False, soft_wrap=False
    )
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    options = DemoOptions(
        clock=SystemClock(), folder=folder, steps=shipped_steps(), seconds=arguments.seconds
    )
    async with running_demo(options) as play:
        outcome = await _until_settled(console, play, stop)
        if outcome.interrupted:
            print("Interrupted.")
            return _INTERRUPTED
        _conclude(console, outcome)
        if arguments.svg is not None:
            _draw(arguments.svg, outcome)
        if arguments.keep:
            print(f"\nThe cluster is still there: export KUBECONFIG={play.kubeconfig}")
            print("Ctrl-C ends it.", flush=True)
            await play.until_stopped(stop)
        else:
            _suggest(console)
    return 1 if outcome.faults else 0


async def _until_settled(console: Console, play: DemoPlay, stop: asyncio.Event) -> DemoOutcome:
    """Show the play while it goes on: a live view on a terminal, else a line for each thing."""
    show = _live if console.is_terminal else _lines
    showing = asyncio.create_task(show(console, play), name="demo view")
    try:
        return await play.until_settled(stop)
    finally:
        showing.cancel()
        await asyncio.wait([showing])
        if not showing.cancelled():
            showing.result()


async def _live(console: Console, play: DemoPlay) -> None:
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while True:
            width, height = console.size
            live.update(screen(play.witness.scene(), width=width, height=height), refresh=True)
            await asyncio.sleep(_FRAME_S)  # noqa: TID251 - a terminal lives in real time


async def _lines(console: Console, play: DemoPlay) -> None:
    del console
    print(f"An embedded cluster answers at {play.url}; the daemon runs against it.", flush=True)
    before, told = ClusterScene(at_s=0.0), 0
    try:
        while True:
            before, told = _print_news(play, before, told)
            await asyncio.sleep(_FRAME_S)  # noqa: TID251 - a terminal lives in real time
    finally:
        _print_news(play, before, told)


def _print_news(play: DemoPlay, before: ClusterScene, told: int) -> tuple[ClusterScene, int]:
    """Print what happened since; the new moment, and how many of the user's acts are told."""
    now = play.witness.scene()
    for line in [f"{now.at_s:5.1f} s  {act}" for act in play.applied[told:]] + news(before, now):
        print(line, flush=True)
    return now, len(play.applied)


def _conclude(console: Console, outcome: DemoOutcome) -> None:
    console.print(Text())
    console.print(finale(outcome, width=console.width))
    for line in totals(outcome):
        console.print(Text(line))
    for fault in outcome.faults:
        console.print(Text(f"FAILED: {fault}", "red"))


def _draw(path: Path, outcome: DemoOutcome) -> None:
    scene = outcome.fullest
    shown = Group(headline(scene), tables(scene), Text(), finale(outcome, width=_SVG_WIDTH))
    path.write_text(svg(shown, title="gpusched demo", width=_SVG_WIDTH), encoding="utf-8")


def _suggest(console: Console) -> None:
    """Three commands that work as printed, from the folder in which the demo was started."""
    gpusched = shlex.quote(_own_name())
    kubeconfig = "--kubeconfig gpusched-devcluster.kubeconfig"
    explain = f"{gpusched} explain"
    if shutil.which("kubectl") and shutil.which("kubectl-gpusched"):
        explain = "kubectl gpusched explain"
    console.print(Text("\nTry next, the first two in a terminal each:", "bold"))
    for line in (
        f"{gpusched} devcluster --apply {_place('kwok-scenarios/first-gang')}",
        f"{gpusched} run {kubeconfig} --config {_place('conf/gpusched.yaml')}",
        f"{explain} podgroup moonshot {kubeconfig}",
    ):
        print(f"  {line}")


def _own_name() -> str:
    """How this program can be called again: by name when that is on the path, else as it was."""
    called = Path(sys.argv[0])
    name = "gpusched"
    found = shutil.which(name)
    if found and called.exists() and Path(found).samefile(called.with_name(name)):
        return name
    return os.path.relpath(called) if called.name == name else name


def _place(name: str) -> str:
    path = installed_files.path(name)
    relative = os.path.relpath(path)
    return shlex.quote(str(path) if relative.startswith("..") else relative)
