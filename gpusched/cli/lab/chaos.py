"""``gpusched chaos``: faults of every kind on clusters drawn from seeds, or on one of a script."""

from __future__ import annotations

import argparse
import json
import logging
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Final

from gpusched.base.clock import SystemClock
from gpusched.base.errors import UsageError
from gpusched.cli.command import Subparsers
from gpusched.cli.shell.start import INTERRUPTED
from gpusched.config.load import load_file
from gpusched.config.model import DEFAULT, Config
from gpusched.lab.chaos.campaign import play_or_report, run_campaign, shortest_script
from gpusched.lab.chaos.crashes import crash_points, lost_events, play_with_death, stale
from gpusched.lab.chaos.play import ChaosRun
from gpusched.lab.chaos.scripts.script import read_script
from gpusched.lab.scenario.file.read import read_paths

SEEDS_MAX: Final = 1_000_000
_SEEDS: Final = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
_TOLD_MAX: Final = 3
_EVERY: Final = 50


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = subparsers.add_parser(
        "chaos",
        description="Play clusters with gangs, queues and faults drawn from seeds against the "
        "real daemon in virtual time, and check the invariants after each write. Exit 1 when one "
        "does not hold.",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--seeds", metavar="A-B", type=_seeds, default="0-99",
                      help="one seed, or the first and the last (default: 0-99)")  # fmt: skip
    what.add_argument("--script", metavar="FILE", type=Path,
                      help="play what --shrink has written, instead of seeds")  # fmt: skip
    what.add_argument("--crashes", metavar="PATH", nargs="+", type=Path,
                      help="play these scenarios once for each write of the daemon, which dies "
                      "before it is sent or after it is done")  # fmt: skip
    parser.add_argument("--lost-events", action="store_true",
                        help="with --crashes: lose one watch event each time, instead of a "
                        "death")  # fmt: skip
    parser.add_argument("--stale", action="store_true",
                        help="with --crashes: after each death the next daemon reads from a replica "
                        "of the API server that is behind")  # fmt: skip
    parser.add_argument("--every", metavar="N", type=_positive, default=1,
                        help="with --crashes: only every so-many-th of them (default: 1)")  # fmt: skip
    parser.add_argument("--offset", metavar="N", type=int, default=0,
                        help="with --every: which of them comes first (default: 0)")  # fmt: skip
    parser.add_argument("--jobs", metavar="N", type=_positive, default=1,
                        help="seeds that are played at a time (default: 1)")  # fmt: skip
    parser.add_argument("--config", metavar="FILE", help="configuration of the daemons")
    parser.add_argument("--shrink", action="store_true",
                        help="print the shortest script that fails alike, for each seed that "
                        "fails")  # fmt: skip
    parser.add_argument("--report", metavar="FILE", type=Path,
                        help="also write every failure as a line of JSON")  # fmt: skip
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Play, tell, and say whether everything held.

    Raises:
        ConfigError: the configuration or the script cannot be used.
        UsageError: the report cannot be written.
    """
    logging.disable(logging.CRITICAL)  # what daemons log in thousands of runs helps nobody
    config = load_file(arguments.config) if arguments.config else DEFAULT
    if arguments.crashes:
        return _crashes(arguments)
    teller = _ChaosProgress(arguments, config)
    if arguments.script is not None:
        runs: Iterator[ChaosRun] = iter([play_or_report(read_script(arguments.script), config)])
        for each in runs:
            teller.count(each)
            if not each.ok:
                teller.failed(each)
        print(f"digest {each.digest}")
    else:
        failed = run_campaign(
            arguments.seeds, jobs=arguments.jobs, config=config, tell=teller.count
        )  # fmt: skip
        try:
            for each in failed:
                teller.failed(each)
        except KeyboardInterrupt:
            teller.end()
            print(f"interrupted: {teller.told_of_all} were played", file=sys.stderr)
            return INTERRUPTED
    return teller.end()


def _crashes(arguments: argparse.Namespace) -> int:
    """Scenarios, each with one death or lost event after another."""
    failed = total = 0
    for scenario in read_paths(arguments.crashes):
        calm = play_with_death(scenario, None)
        choose = (
            lost_events if arguments.lost_events else stale if arguments.stale else crash_points
        )
        chosen = list(choose(calm, every=arguments.every, offset=arguments.offset))
        wrong = [calm] if calm.wrong else []
        for point in chosen:
            done = play_with_death(scenario, point, calm)
            if done.wrong:
                wrong.append(done)
                print(f"{scenario.name}, {point}: {'; '.join(done.wrong[:_TOLD_MAX])}", flush=True)
        total += len(chosen)
        failed += len(wrong)
        print(
            f"{scenario.name}: {calm.writes} writes, {calm.events} watch events, {len(chosen)} "
            f"runs, {len(wrong)} failed",
            flush=True,
        )
    print(f"{total} runs, {failed} failed")
    return 1 if failed else 0


def _open_report(file: Path | None) -> IO[str] | None:
    try:
        return file.open("w", encoding="utf-8") if file is not None else None
    except OSError as error:
        raise UsageError(f"--report: {file} cannot be written: {error.strerror}") from error


class _ChaosProgress:
    """Says what comes of runs."""

    def __init__(self, arguments: argparse.Namespace, config: Config) -> None:
        self._shrinks = arguments.shrink
        self._config = config
        self._total = 1 if arguments.script is not None else len(arguments.seeds)
        self._report = _open_report(arguments.report)
        self._clock = SystemClock()
        self._begun = self._clock.monotonic()
        self._runs = self._failed = 0
        self._counts: Counter[str] = Counter()
        self._broken: Counter[str] = Counter()
        self._terminal = sys.stderr.isatty()

    def count(self, run: ChaosRun) -> None:
        """One more run is over."""
        self._runs += 1
        self._counts.update(run.counts)
        self._counts["virtual_s"] += int(run.virtual_s)
        if self._terminal and self._runs < self._total:
            print(f"\r{self._runs} of {self._total} seeds, {self._failed} failed ", end="",
                  file=sys.stderr, flush=True)  # fmt: skip
        elif self._runs % _EVERY == 0:
            print(f"{self._runs} of {self._total} seeds", file=sys.stderr, flush=True)

    @property
    def told_of_all(self) -> str:
        """How many have been played of how many."""
        return f"{self._runs:,} of {self._total:,} seeds"

    def failed(self, run: ChaosRun) -> None:
        """A run in which something did not hold."""
        self._failed += 1
        self._broken.update({each.finding.invariant for each in run.seen})
        if self._terminal:
            print("\r", end="", file=sys.stderr)
        print(f"seed {run.script.seed}:")
        for each in run.seen[:_TOLD_MAX]:
            print(f"  {each}")
        if len(run.seen) > _TOLD_MAX:
            print(f"  and {len(run.seen) - _TOLD_MAX} more")
        script = shortest_script(run, self._config) if self._shrinks else run.script
        if self._shrinks:
            print("".join(f"    {line}\n" for line in script.text().splitlines()), end="")
        sys.stdout.flush()
        if self._report is not None:
            json.dump(_failure(run, script.text()), self._report)
            self._report.write("\n")
            self._report.flush()

    def end(self) -> int:
        """The summary; the exit status."""
        if self._report is not None:
            self._report.close()
        seconds = self._clock.monotonic() - self._begun
        days = self._counts["virtual_s"] / 86_400
        did = self._counts
        print(
            f"{self._runs} runs, {days:.1f} days of virtual time in {seconds:.0f} s: "
            f"{did['starts']} daemons started, {did['binding']} bindings and {did['eviction']} "
            f"evictions accepted, {did['kill']} kills, {did['pause']} pauses, "
            f"{did['fault'] + did['events']} faults of requests and watches, "
            f"{did['server'] + did['restore']} restarts of the server"
        )
        if not self._failed:
            print("every invariant held")
            return 0
        broken = ", ".join(f"{name} in {count}" for name, count in sorted(self._broken.items()))
        print(f"{self._failed} runs failed: {broken}")
        return 1


def _failure(run: ChaosRun, script: str) -> dict[str, Any]:
    return {
        "seed": run.script.seed,
        "digest": run.digest,
        "found": [
            {"at": each.at, "invariant": each.finding.invariant, "sentence": each.finding.sentence}
            for each in run.seen
        ],
        "script": script,
    }


def _seeds(text: str) -> Sequence[int]:
    match = _SEEDS.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a seed nor FIRST-LAST")
    first, last = int(match[1]), int(match[2] or match[1])
    if not first <= last < first + SEEDS_MAX:
        raise argparse.ArgumentTypeError(
            f"{text!r} must go upwards, over {SEEDS_MAX} seeds at most"
        )  # fmt: skip
    return range(first, last + 1)


def _positive(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 256:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to 256")
    return int(text)
