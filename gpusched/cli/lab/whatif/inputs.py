"""What is played: the cluster, what arrives in it, how long everything runs, and what is assumed for that."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.api.meta.identity import format_time
from gpusched.base.classes import frozen
from gpusched.base.errors import UsageError
from gpusched.cli.command import connection_choice
from gpusched.cli.inspect.ask.recorded_cluster import read_file
from gpusched.cli.inspect.cluster_reader import with_cluster
from gpusched.cli.inspect.listing.history_list import (
    NoHistory,
    read_history_file,
    read_served_history,
)
from gpusched.cli.lab.whatif.requested_changes import collect_requests
from gpusched.config.model import Config
from gpusched.engine.from_snapshot import SimulationStart, start_from_snapshot
from gpusched.engine.objects import Obj
from gpusched.engine.world import SimulatedDelays
from gpusched.io.history.history_query import HistoryQuery
from gpusched.lab.scenario.judge.messages import duration_text
from gpusched.lab.simulate.played_shards import shards_notes
from gpusched.lab.simulate.traces.csv_jobs import read_csv_jobs
from gpusched.lab.whatif.arrivals import (
    LoadFactor,
    LoadJob,
    apply_load_factors,
    jobs_of_trace,
    read_load_factor,
    refuse_factors_twice,
    repeat_load,
)
from gpusched.lab.whatif.change_plan import ChangePlan, plan_changes
from gpusched.lab.whatif.moments import DAY_S, parse_moment, parse_span
from gpusched.lab.whatif.past_load import (
    PastGang,
    RunTimeGuesses,
    covered_window,
    gangs_of_history,
    past_load,
)
from gpusched.lab.whatif.play import CHANGED, UNCHANGED, PlayedCluster, PlayInput
from gpusched.lab.whatif.queue_checks import lost_jobs_note, queue_remarks
from gpusched.view.over_time.advice_view import SHARDS_LEFT_OUT

DEFAULT_S: Final = DAY_S
_AFTER_S: Final = DAY_S / 2
"""So long is played at least after the last change."""
LONGEST_S: Final = 366 * DAY_S
START_S: Final = 1.0
GRACE_S: Final = 30.0
_EXACT_S: Final = 7 * DAY_S
_STEP_S: Final = 300.0
"""Where more than ``_EXACT_S`` is played, decisions are taken so often at most."""
_STEP_MAX_S: Final = 3600.0
_SERVED: Final = "served"


@frozen(kw_only=True)
class WhatIfQuestion:
    """A question, read.

    Attributes:
        source: the cluster, for people.
        changes: one sentence each.
        assumptions: one sentence each.
    """

    source: str
    given: PlayInput
    unchanged: PlayedCluster
    changed: PlayedCluster
    changes: tuple[str, ...]
    assumptions: tuple[str, ...]


def read_question(
    arguments: argparse.Namespace, config: Config, other: Config | None
) -> WhatIfQuestion:
    """Read the cluster and what is asked of it.

    Args:
        arguments: of the command line.
        config: of the daemon.
        other: of the changed cluster's daemon; None for the same.

    Raises:
        UsageError: what cannot be understood, or contradicts itself.
        ConfigError: a file cannot be used.
        ClusterUnreachable: no cluster.
        Denied: the cluster may not be read.
    """
    requests = collect_requests(arguments.changes or ())
    if not requests and not arguments.load and other is None:
        raise UsageError(
            "what if what? Name a change, such as --drain rack=r7 --from 22:00 --for 2h, "
            "--set queue/research.deserved=128 or --load queue/research*2"
        )
    read = read_file(arguments)
    snapshot = read.file
    now = snapshot.taken_at
    gangs = _history(arguments, config, now)
    guesses = RunTimeGuesses(gangs, now=now)
    is_assumed = bool(arguments.assume_duration)
    start = start_from_snapshot(snapshot, guess=guesses.guess_object, deadlines=not is_assumed)
    plan = plan_changes(requests, start.objects, now=now)
    until = _until(arguments, plan, now)
    base, load_notes = _base_load(arguments, start.objects, gangs, guesses, now=now, until=until)
    factors = _factors(arguments, start.objects, base)
    assume_s = parse_span(arguments.assume_duration, "--assume-duration") if is_assumed else None
    step_s = _step(arguments, until)
    source = f"snapshot {arguments.snapshot}" if arguments.snapshot else "the live cluster"
    return WhatIfQuestion(
        source=f"{source} of {format_time(now)}, played until {format_time(now + until)} "
        f"({duration_text(round(until))})",
        given=PlayInput(
            objects=start.objects, epoch=now, until=until,
            pace=SimulatedDelays(start_s=START_S, stop_s=GRACE_S, assume_s=assume_s), step_s=step_s,
            board=read.board,
        ),
        unchanged=PlayedCluster(name=UNCHANGED, config=config, load=base),
        changed=PlayedCluster(
            name=CHANGED, config=other or config, load=apply_load_factors(base, factors),
            changes=plan.changes,
        ),
        changes=(
            *plan.messages,
            *queue_remarks(start.objects, plan.changes, other or config, now=now),
            *(factor.message for factor in factors),
            *((f"the configuration is that of {arguments.new_config}",) if other else ()),
        ),
        assumptions=(
            *_shards_notes(config, other, start.objects, in_shards=read.in_shards),
            *_run_time_notes(start, assume_s), *load_notes, *_general_notes(start), *_step_notes(step_s),
        ),
    )  # fmt: skip


def _shards_notes(
    config: Config, other: Config | None, objects: Sequence[Obj], *, in_shards: bool
) -> tuple[str, ...]:
    """How shards are played, or that they are not, as the configuration does not name them."""
    notes = shards_notes(config, objects)
    if in_shards and not notes:
        notes = (
            SHARDS_LEFT_OUT,
            "give --config with the shards of the daemons, and they are played",
        )
    if other is None:
        return notes
    changed = shards_notes(other, objects)
    if changed == notes:
        return notes
    return (*notes, *(f"under the new configuration {note}" for note in changed))


def _until(arguments: argparse.Namespace, plan: ChangePlan, now: float) -> float:
    """Seconds that are played."""
    if arguments.until is None:
        return max(DEFAULT_S, plan.latest_s + _AFTER_S)
    text = arguments.until
    try:
        until = parse_span(text, "--until")
    except UsageError:
        until = parse_moment(text, "--until", now=now) - now
    if until <= 0 or until > LONGEST_S:
        raise UsageError(f"--until {text}: more than nothing and up to a year can be played")
    late = max((change.at for change in plan.changes), default=0.0)
    if late > until:
        raise UsageError(
            f"--until {format_time(now + until)} is before a change at {format_time(now + late)}: "
            "play longer or leave that change out"
        )
    return until


def _step(arguments: argparse.Namespace, until: float) -> float:
    """Seconds for which changes are gathered; 0 for as the daemon does."""
    if arguments.step is None:
        return _STEP_S if until > _EXACT_S else 0.0
    step_s = parse_span(arguments.step, "--step")
    if step_s > _STEP_MAX_S:
        raise UsageError(f"--step {arguments.step}: at most an hour; 0s decides as the daemon does")
    return step_s


def _step_notes(step_s: float) -> list[str]:
    if not step_s:
        return []
    step = duration_text(round(step_s))
    return [
        f"what changes within {step} is decided about together; --step 0s decides at once, and takes longer"
    ]


# -- load --------------------------------------------------------------------------------------
def _history(arguments: argparse.Namespace, config: Config, now: float) -> tuple[PastGang, ...]:
    """Gangs of the history's last days; none where no history is named."""
    if arguments.history is None:
        return ()
    window_s = parse_span(arguments.load_window, "--load-window")
    query = HistoryQuery(since=max(0.0, now - window_s), until=now)
    if arguments.history == _SERVED:
        try:
            items, _ = with_cluster(
                connection_choice(arguments),
                lambda api: read_served_history(api, config.leader_election, query, None, 0),
            )
        except NoHistory as error:
            why = str(error).partition("; --file")[0]
            raise NoHistory(
                f"{why}; --history FILE reads the file of gpusched run --history"
            ) from error
    else:
        items, _ = read_history_file(Path(arguments.history), query, None, 0, now)
    return gangs_of_history(items)


def _base_load(
    arguments: argparse.Namespace,
    objects: tuple[Obj, ...],
    gangs: tuple[PastGang, ...],
    guesses: RunTimeGuesses,
    *,
    now: float,
    until: float,
) -> tuple[tuple[LoadJob, ...], list[str]]:
    """What arrives in both, and what is said of it and of the queues that it names."""
    jobs, notes = _read_load(arguments, objects, gangs, guesses, now=now, until=until)
    lost = lost_jobs_note(objects, jobs)
    return jobs, [*notes, lost] if lost else notes


def _read_load(
    arguments: argparse.Namespace,
    objects: tuple[Obj, ...],
    gangs: tuple[PastGang, ...],
    guesses: RunTimeGuesses,
    *,
    now: float,
    until: float,
) -> tuple[tuple[LoadJob, ...], list[str]]:
    """What arrives in both, and what is said of it."""
    if arguments.arrivals is not None:
        trace = read_csv_jobs(Path(arguments.arrivals), strict=True)
        jobs = repeat_load(
            jobs_of_trace(trace.jobs, node_gpus=_node_gpus(objects)), window_s=None, until=until
        )
        return jobs, [
            f"{len(jobs):,} jobs of {arguments.arrivals} arrive, once, from now on; they ask for GPUs alone"
        ]
    if arguments.history is None:
        return (), ["nothing new arrives; --history or --arrivals FILE says what does"]
    wanted_s = parse_span(arguments.load_window, "--load-window")
    window_s = covered_window(gangs, now=now, wanted_s=wanted_s)
    past = past_load(gangs, guesses, now=now, window_s=window_s)
    jobs = repeat_load(past.jobs, window_s=window_s, until=until)
    window = duration_text(round(window_s))
    count = f"{len(past.jobs):,} gangs"
    notes = [
        f"the {count} that came in the {window} before come again every {window} and run as long",
        "gangs that arrive are Jobs that ask for GPUs alone: the history knows no more of them",
    ]
    if past.guessed:
        notes.append(
            f"{past.guessed:,} of these have not ended: they run as long as others of their queue did"
        )
    if past.left_out:
        notes.append(
            f"{past.left_out:,} more do not arrive again, as nothing tells how long they run"
        )
    return jobs, notes


def _factors(
    arguments: argparse.Namespace, objects: tuple[Obj, ...], base: tuple[LoadJob, ...]
) -> list[LoadFactor]:
    if arguments.load and arguments.arrivals is None and arguments.history is None:
        raise UsageError(
            f"--load {arguments.load[0]}: nothing arrives that could be more; --history or "
            "--arrivals FILE says what does"
        )
    factors = [read_load_factor(text, objects, base) for text in arguments.load]
    refuse_factors_twice(factors)
    return factors


def _node_gpus(objects: tuple[Obj, ...]) -> int:
    """GPUs of the largest node; 1 where none has any."""
    name = gpu_resources().main.name
    offers = [
        str(((obj.get("status") or {}).get("allocatable") or {}).get(name, "0"))
        for obj in objects if obj.get("kind") == "Node"
    ]  # fmt: skip
    return max([1, *(int(each) for each in offers if each.isdecimal())])


# -- what is said ------------------------------------------------------------------------------
def _run_time_notes(start: SimulationStart, assume_s: float | None) -> list[str]:
    counts = [f"{start.told:,} of the pods that run say how long (expectedDuration)"]
    if start.late:
        counts.append(
            f"{start.late:,} of them are over that time, and taken to end within a minute"
        )
    if start.guessed:
        counts.append(
            f"for {start.guessed:,} it is guessed from the history: the median of their user's or queue's runs"
        )
    if start.untold:
        rest = "run on until the end" if assume_s is None else (
            f"are assumed to run {duration_text(round(assume_s))} where a Job, a group or nobody made them, else on"
        )  # fmt: skip
        counts.append(f"{start.untold:,} {rest}")
    return ["; ".join(counts)]


def _general_notes(start: SimulationStart) -> list[str]:
    notes = [
        f"a pod runs {START_S:g} s after its binding and is gone {GRACE_S:g} s after its eviction; pods do not fail"
    ]
    if any(obj.get("kind") == "PodDisruptionBudget" for obj in start.objects):
        notes.append(
            "disruption budgets stay as they are now, and a drain without times does not wait for them"
        )
    told = [each for each in start.remarks if "--assume-duration" not in each]
    return [*notes, *told]


def add_input_options(parser: argparse.ArgumentParser) -> None:
    """The options that say what is played."""
    parser.add_argument(
        "--snapshot",
        metavar="FILE",
        help="a cluster that gpusched snapshot recorded (default: the live cluster)",
    )
    parser.add_argument(
        "--until", metavar="TIME",
        help="play so long: a duration such as 36h or 30d, or a time (a day, and half a day after the last change)",
    )  # fmt: skip
    parser.add_argument(
        "--step", metavar="DURATION",
        help="gather changes for so long before deciding (0s up to a week, 5m for longer)",
    )  # fmt: skip
    load = parser.add_argument_group(
        "load", "what arrives while it is played; nothing unless it is named"
    )
    load.add_argument(
        "--history", nargs="?", const=_SERVED, metavar="FILE",
        help="what came in the last days comes again, and run times are learned from it: of the daemon, "
        "or of the FILE that it writes",
    )  # fmt: skip
    load.add_argument(
        "--load-window", default="7d", metavar="DURATION",
        help="so much of the history is played again and again (7d)",
    )  # fmt: skip
    load.add_argument(
        "--arrivals", metavar="FILE",
        help="jobs arrive as this CSV says: submit_s,duration_s,gpus,queue and name",
    )  # fmt: skip
    load.add_argument(
        "--load", action="append", default=[], metavar="TENANT*FACTOR",
        help="change: more of a tenant's jobs arrive, such as queue/research*2 or namespace/team-a*1.5",
    )  # fmt: skip
    load.add_argument(
        "--assume-duration", metavar="DURATION",
        help="of Jobs, groups and bare pods of which nothing tells how long they run (no end)",
    )  # fmt: skip


def question_json(question: WhatIfQuestion) -> dict[str, Any]:
    """What is asked, for programs."""
    return {
        "source": question.source,
        "from": format_time(question.given.epoch),
        "until": format_time(question.given.epoch + question.given.until),
        "changes": list(question.changes),
        "assumptions": list(question.assumptions),
        "arrivals": {"asItIs": len(question.unchanged.load), "changed": len(question.changed.load)},
    }
