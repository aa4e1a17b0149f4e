"""Starts beside what gangs were told of them, on whole daemons: as told, later, earlier, after a restart."""

from __future__ import annotations

import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gpusched.api.meta.identity import parse_time
from gpusched.config.model import DEFAULT
from gpusched.io.history.history_query import HistoryQuery, query_history
from gpusched.io.history.history_writer import HistoryOptions
from gpusched.lab.scenario.play.start_plays import play_starts_of

COMPARED = "gpusched_start_estimate_error_seconds_count"
GROUPS = "podgroups.scheduling.gpusched.io"
QUEUES = "queues.scheduling.gpusched.io"


@pytest.fixture
def options(tmp_path):
    """A file that is not there yet."""
    return HistoryOptions(file=tmp_path / "history.db", keep_s=86_400.0, rows_max=1_000)


def queue(w, name="team", **spec):
    w.client.create(
        QUEUES,
        {
            "apiVersion": "scheduling.gpusched.io/v1alpha1",
            "kind": "Queue",
            "metadata": {"name": name},
            "spec": spec,
        },
    )


def gang(w, name, *, says="5m", runs="300s", queue="team"):
    """A gang that takes the one node, says how long it runs, and runs for as long as it does."""
    w.group(name, queue=queue, minMember=1, expectedDuration=says)
    w.pod(
        f"{name}-0", gpus=8, labels={"gpusched.io/pod-group": name},
        annotations={"gpusched.io/run-for": runs},
    )  # fmt: skip


def metric(daemon, name, **labels):
    """The value of a metric with these labels and perhaps others; 0.0 where there is none."""
    rendered = daemon.app.telemetry.render().decode()
    text = "\n".join(re.findall(rf"(?m)^{name}[{{ ].*", rendered)) + "\n"
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if labels.items() <= sample.labels.items()
    )


def status_of(w, name):
    return w.client.get(GROUPS, "default", name).get("status") or {}


def learned(w, name="team"):
    """What the Queue has of earlier starts: percent and starts, by what was known."""
    told = (w.client.get(QUEUES, None, name).get("status") or {}).get("startEstimates") or []
    return {each["knownBy"]: each["startsByPercent"] for each in told}


async def wait_behind(w, *, says, runs):
    """One gang runs, and another one waits for its end and starts."""
    gang(w, "first", says=says, runs=runs)
    await w.until(lambda: len(w.running("first")) == 1)
    gang(w, "second")
    await w.until(lambda: status_of(w, "second").get("estimatedStartTime"))
    await w.until(lambda: len(w.running("second")) == 1, within=2_000)
    await w.clock.sleep(5)


def test_a_start_as_told_counts_as_such(play, options):
    """Given a gang whose room is free when it was told, then error and class say so, everywhere."""

    async def scenario(w):
        await w.start(nodes=1)
        queue(w)
        daemon = w.daemon(history=options)
        await wait_behind(w, says="5m", runs="300s")
        name = {"queue": "team", "known_by": "Announced"}
        assert metric(daemon, "gpusched_start_estimate_error_seconds_count", **name) == 1
        assert metric(daemon, "gpusched_start_estimate_error_seconds_bucket", le="5", **name) == 1
        assert metric(daemon, "gpusched_start_estimate_error_ratio_bucket", le="0.02", **name) == 1
        await daemon.stop()
        ((kind, counts),) = learned(w).items()
        assert kind == "Announced"
        ((percent, starts),) = counts.items()
        assert starts == 1
        assert 97 <= int(percent) <= 105
        runs = {run.gang.name: run for run in query_history(options.file, HistoryQuery()).runs}
        second = runs["second"]
        assert second.known_by == "Announced"
        assert abs(second.started - second.half_start) < 5
        assert second.since <= second.told_at < second.since + 5
        assert second.estimate_moves == 0
        assert runs["first"].known_by == ""

    play(scenario, limit_s=3_000)


@pytest.mark.parametrize(
    ("says", "runs", "least", "most"),
    [("5m", "900s", 250, 333), ("20m", "300s", 14, 25)],
    ids=["longer than said", "shorter than said"],
)
def test_a_start_that_comes_otherwise_is_learned_so(play, says, runs, least, most):
    """Given an author who is wrong, then the queue's summary says by how much others waited longer or shorter."""

    async def scenario(w):
        await w.start(nodes=1)
        queue(w)
        daemon = w.daemon()
        await wait_behind(w, says=says, runs=runs)
        assert metric(daemon, "gpusched_start_estimate_error_seconds_bucket", le="300") == 0
        assert metric(daemon, "gpusched_start_estimate_error_seconds_bucket", le="900") == 1
        await daemon.stop()
        ((percent, starts),) = learned(w)["Announced"].items()
        assert starts == 1
        assert least <= int(percent) <= most

    play(scenario, limit_s=3_000)


def test_a_restart_goes_on_from_what_was_learned(play):
    """Given a daemon that is killed, then the next one adds to the same summary."""

    async def scenario(w):
        await w.start(nodes=1)
        queue(w)
        daemon = w.daemon()
        await wait_behind(w, says="5m", runs="300s")
        before = learned(w)
        assert sum(before["Announced"].values()) == 1
        daemon.kill()
        w.daemon()
        gang(w, "third")
        await w.until(lambda: len(w.running("third")) == 1, within=1_000)
        await w.until(lambda: sum(learned(w)["Announced"].values()) == 2)

    play(scenario, limit_s=3_000)


def test_a_gang_is_told_the_range_of_earlier_starts(play):
    """Given ten starts of which most came late, then the next gang is told from when to when."""

    async def scenario(w):
        await w.start(nodes=1)
        queue(w)
        tally = {
            "knownBy": "Announced",
            "startsByPercent": {"100": 2, "105": 3, "200": 5, "nonsense": 4},
        }
        w.client.patch(
            QUEUES, None, "team", {"status": {"startEstimates": [tally]}}, subresource="status"
        )
        daemon = w.daemon()
        gang(w, "first", says="20m", runs="1200s")
        await w.until(lambda: len(w.running("first")) == 1)
        gang(w, "second")
        await w.until(lambda: status_of(w, "second").get("estimatedStartRange"))
        told = status_of(w, "second")
        assert told["estimatedStartRange"]["knownBy"] == "Announced"
        assert told["estimatedStartRange"]["earliest"] <= told["estimatedStartTime"]
        assert told["estimatedStartTime"] < told["estimatedStartRange"]["latest"]
        await w.until(lambda: len(w.running("second")) == 1, within=2_000, every=1)
        await w.until(lambda: "estimatedStartRange" not in status_of(w, "second"))
        assert metric(daemon, "gpusched_start_estimate_ranges_total", result="held") == 1

    play(scenario, limit_s=3_000)


def test_an_estimate_that_moves_says_why(play, options):
    """Given a second node that fails, then whoever counted on it is told that, and by how much."""

    async def scenario(w):
        await w.start(nodes=1)
        queue(w)
        daemon = w.daemon(history=options)
        told = []
        w.node("second", 8)
        gang(w, "short", says="5m", runs="300s")
        gang(w, "long", says="25m", runs="1500s")
        await w.until(lambda: len(w.running("short")) == 1 and len(w.running("long")) == 1)
        daemon.app.cycle.shown.append(
            lambda _snapshot, plan, _decision: told.extend(
                each.estimate_change for each in plan.gangs if each.estimate_change
            )
        )
        gang(w, "waits")
        await w.until(lambda: status_of(w, "waits").get("estimatedStartTime"))
        (short,) = w.running("short")
        node = short["spec"]["nodeName"]
        w.client.patch("nodes", None, node, {"spec": {"unschedulable": True}})
        await w.until(lambda: told)
        assert told[-1].startswith("20m")
        assert "later than told before" in told[-1]
        assert told[-1].endswith(f": node {node} cannot be used any more")
        await w.until(lambda: len(w.running("waits")) == 1, within=2_000)
        await daemon.stop()
        runs = {run.gang.name: run for run in query_history(options.file, HistoryQuery()).runs}
        assert runs["waits"].estimate_moves == 1
        assert runs["waits"].estimate_change == told[-1]

    play(scenario, limit_s=3_000)


def told_starts(w, *names):
    """When gangs are told to start, seconds since the epoch, the first one first."""
    told = {name: parse_time(status_of(w, name)["estimatedStartTime"]) for name in names}
    return dict(sorted(told.items(), key=lambda each: each[1]))


@pytest.mark.parametrize(
    ("period", "after_s"),
    [("5m", {"a-0": 0, "b-0": 0, "b-1": 300}), ("0s", {"b-0": 0, "b-1": 0, "a-0": 300})],
    ids=["played", "never played"],
)
def test_a_start_is_told_as_the_line_comes_out_when_it_is_played(play, tmp_path, period, after_s):
    """Given two gangs of ``a`` and one of ``b``, then ``a`` holds nothing, and is served first, when its two end.

    A session lays gangs in the order of its moment, in which all of ``b`` come before ``a``.
    """

    async def scenario(w):
        await w.start(nodes=3)
        queue(w, "a")
        queue(w, "b")
        file = tmp_path / "gpusched.yaml"
        file.write_text(f"cycle: {{playStarts: {period}}}\n")
        daemon = w.daemon(
            config_file=str(file), play_starts=lambda: play_starts_of(w.cluster, w.clock, DEFAULT)
        )
        for name, of, runs in (("one", "a", "600s"), ("two", "a", "600s"), ("long", "b", "2h")):
            gang(w, name, says=runs, runs=runs, queue=of)
            await w.until(lambda name=name: len(w.running(name)) == 1)
        for name in ("a-0", "b-0", "b-1"):
            gang(w, name, queue=name[0])
        await w.clock.sleep(10)
        told = told_starts(w, *after_s)
        first = min(told.values())
        assert {name: at - first for name, at in told.items()} == pytest.approx(after_s, abs=10)
        started = {}
        for name in ("a-0", "b-0", "b-1"):
            await w.until(lambda name=name: len(w.running(name)) == 1, within=700)
            started[name] = w.clock.now()
        right = {name for name in told if abs(started[name] - told[name]) < 30}
        assert right == ({*after_s} if period == "5m" else {"b-0"})
        await w.clock.sleep(5)
        kinds = {name: metric(daemon, COMPARED, known_by=name) for name in ("Played", "Waiting")}
        assert kinds["Played"] == (3 if period == "5m" else 0)
        assert (kinds["Waiting"] > 0) is (period == "0s")
        await daemon.stop()

    play(scenario, limit_s=5_000)
