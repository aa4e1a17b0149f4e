"""Ranges of expected starts and errors of earlier ones, as commands print them."""

from __future__ import annotations

import attrs

from gpusched.api.meta.identity import UID, GangKey
from gpusched.cli.inspect.listing.history_table import run_rows
from gpusched.cli.inspect.listing.view_table import job_rows, queue_rows
from gpusched.io.history.gang_run import GangRun
from gpusched.io.history.past_runs import run_as_json
from gpusched.view.model import GangView, QueueGpus, QueueView, StartAccuracyView, ViewName

START = "2026-11-28T14:20:00Z"


def waiting(**told):
    """A gang that waits, with what is told of its start."""
    return GangView(
        metadata=ViewName(namespace="ns", name="train"), gang_kind="Job", queue="q", priority=0,
        state="Waiting", placed=0, waiting=2, min_member=2, gpus="16", position=1,
        estimated_start_time=START, **told,
    )  # fmt: skip


def cells(rows):
    """The first line by the titles of its columns."""
    return dict(zip(rows[0], rows[1], strict=True))


def test_get_jobs_shows_a_range_where_one_is_known():
    told = waiting(
        estimated_start_earliest="2026-11-28T13:50:00Z",
        estimated_start_latest="2026-11-28T15:40:00Z",
    )
    shown = cells(job_rows([told], 0.0, start=True, wide=False, everywhere=False))
    assert (shown["START"], shown["EARLIEST"]) == (START, "2026-11-28T13:50:00Z")
    assert shown["LATEST"] == "2026-11-28T15:40:00Z"
    shown = cells(job_rows([waiting()], 0.0, start=True, wide=False, everywhere=False))
    assert shown["START"] == START
    assert not {"EARLIEST", "LATEST"} & shown.keys()


def test_get_queues_counts_starts_as_told():
    told = StartAccuracyView(
        known_by="Announced", starts=40, as_told=31, median_percent=101, ranged=20, held=16
    )
    queue = QueueView(
        metadata=ViewName(name="q"), state="Open", gpus=QueueGpus(), start_estimates=(told, told)
    )
    assert cells(queue_rows([queue], 0.0, wide=True))["STARTS"] == "80, 62 as told"


def test_get_history_shows_how_far_a_start_was_from_what_was_told():
    run = GangRun(
        gang=GangKey("Job", "ns", "train"), uid=UID("u"), seen=1.0, queue="q", priority=0,
        min_member=1, created=1.0, since=1e9, started=1e9 + 600, half_start=1e9 + 690,
        known_by="Announced",
    )  # fmt: skip
    shown = cells(run_rows([run_as_json(run, 1e9 + 700)], wide=True, everywhere=False))
    assert (shown["ERROR"], shown["KNOWN-BY"]) == ("-1m30s", "Announced")
    assert shown["ESTIMATE"] == "2001-09-09T01:58:10Z"
    late = attrs.evolve(run, half_start=1e9)
    shown = cells(run_rows([run_as_json(late, 1e9 + 700)], wide=True, everywhere=False))
    assert shown["ERROR"] == "10m"
    untold = attrs.evolve(run, half_start=0.0, known_by="")
    shown = cells(run_rows([run_as_json(untold, 1e9 + 700)], wide=True, everywhere=False))
    assert (shown["ERROR"], shown["ESTIMATE"]) == ("", "")
