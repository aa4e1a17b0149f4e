"""``python -m benchmarks.experiments``: run M1 to M7, print what came of them, write the page.

Exit status 1 when something that is expected does not hold.
"""

from __future__ import annotations

import argparse
import pickle
import sys
from pathlib import Path

from benchmarks.experiments import device_day, traces
from benchmarks.experiments.page import Part, missed, write
from benchmarks.experiments.pool import Done, do_all
from benchmarks.experiments.scenes import ROOT, experiment_of, parts_of, scenarios, tasks_of
from gpusched.lab.report.statistics.tables import table_as_text


def main() -> int:
    """Run what was asked for; 1 when something does not hold."""
    every = scenarios()
    known = sorted(
        {traces.NAME, device_day.NAME, *(experiment_of(each.name) for each in every.values())}
    )
    parser = argparse.ArgumentParser(prog="python -m benchmarks.experiments", description=__doc__)
    parser.add_argument(
        "--only", choices=known, action="append", help="run this one, write nothing"
    )
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", metavar="DIR", help="(docs)")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="at a time (2)")
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="DIR",
        help="keep what each run came to there, and do not repeat what is there: for a run that "
        "was interrupted, of the same code",
    )
    arguments = parser.parse_args()
    chosen = arguments.only or known
    files = {file: each for file, each in every.items() if experiment_of(each.name) in chosen}
    tasks = tasks_of(files)
    with_traces = traces.NAME in chosen
    if with_traces:
        tasks += traces.tasks_of()
    with_devices = device_day.NAME in chosen
    if with_devices:
        tasks += device_day.tasks_of()
    done = _kept(arguments.keep)
    left = [task for task in tasks if task.name not in done]
    for each in do_all(left, jobs=arguments.jobs):
        done[each.task.name] = each
        if arguments.keep is not None:
            (arguments.keep / f"{each.task.name}.done").write_bytes(pickle.dumps(each))
    parts, costs = parts_of(files, done)
    if with_traces:
        part, more = traces.part_of(done)
        show(part)
        parts.append(part)
        costs += more
    if with_devices:
        part, more = device_day.part_of(done)
        show(part)
        parts.append(part)
        costs += more
    for line in missed(parts):
        print(f"missed: {line}", file=sys.stderr)
    if arguments.only is None:
        print(f"written: {write(arguments.docs, parts, costs)}")
    return 1 if missed(parts) else 0


def _kept(folder: Path | None) -> dict[str, Done]:
    """What an earlier run kept; its folder is made where it is not there."""
    if folder is None:
        return {}
    folder.mkdir(parents=True, exist_ok=True)
    return {file.stem: pickle.loads(file.read_bytes()) for file in sorted(folder.glob("*.done"))}


def show(part: Part) -> None:
    """Tables and verdicts of an experiment that is no scenario."""
    print(f"{part.title}{': not run, ' + part.missing if part.missing else ''}")
    for scene in part.scenes:
        print(f"  {scene.told}")
        for each in scene.verdicts:
            print(f"  {'ok  ' if each.ok else 'FAIL'} {each.sentence}: {each.seen}")
        for table in scene.tables:
            print(f"\n{table_as_text(table)}\n")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted: nothing was written")
