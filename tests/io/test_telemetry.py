"""Metrics come out under the names of the contract, with bounded labels."""

from __future__ import annotations

import re

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from gpusched.base import limits
from gpusched.base.errors import ConfigError
from gpusched.io.observe.telemetry import OTHER, BoundedNames, Telemetry
from gpusched.io.observe.tracing import Tracing


@pytest.fixture
def telemetry():
    """A fresh set of metrics."""
    made = Telemetry()
    yield made
    made.shutdown()


def rows(telemetry: Telemetry, name: str) -> dict[tuple[tuple[str, str], ...], float]:
    """The rendered rows of one metric: sorted labels to value."""
    out = {}
    for line in telemetry.render().decode().splitlines():
        if match := re.fullmatch(rf"{name}(?:{{(.*)}})? (\S+)", line):
            labels = re.findall(r'(\w+)="([^"]*)"', match[1] or "")
            out[tuple(sorted(labels))] = float(match[2])
    return out


def feed(telemetry: Telemetry) -> None:
    """One of everything."""
    telemetry.cycle("allocate", 0.004)
    telemetry.decision(0.03)
    telemetry.start_compared("q", "Announced", error_s=4.0, wait_s=40.0)
    telemetry.start_ranged("q", held=True)
    telemetry.start_untold("q")
    telemetry.solver("OPTIMAL", 0.2, 0.05)
    telemetry.bind("bound")
    telemetry.set_pending("a", "Gated", 2)
    telemetry.set_queue("a", allocated={"cpu": 5}, fair_share={"cpu": 7})
    telemetry.eviction("preempt", "Preempted", 120.0)
    telemetry.evicted_again("reclaim", "a", 60.0)
    telemetry.replace_fragmentation({"rack": 0.25})
    telemetry.relisted("pods")
    telemetry.rejected("pods", "spec.containers")
    telemetry.replace_gpus(
        total={"H100": 8},
        idle={"H100": 3},
        stranded={("H100", "Fragmented"): 1},
        held={("a", "BelowMinimum"): 2.5},
    )


@pytest.mark.parametrize(
    ("name", "labels", "value"),
    [
        ("gpusched_cycle_duration_seconds_count", {"action": "allocate"}, 1),
        ("gpusched_decision_latency_seconds_count", {}, 1),
        (
            "gpusched_start_estimate_error_seconds_count",
            {"queue": "q", "known_by": "Announced"},
            1,
        ),
        (
            "gpusched_start_estimate_error_ratio_sum",
            {"queue": "q", "known_by": "Announced"},
            0.1,
        ),
        ("gpusched_start_estimate_ranges_total", {"queue": "q", "result": "held"}, 1),
        ("gpusched_start_estimates_missing_total", {"queue": "q"}, 1),
        ("gpusched_solver_duration_seconds_count", {"result": "OPTIMAL"}, 1),
        ("gpusched_solver_gap_ratio", {}, 0.05),
        ("gpusched_bind_total", {"result": "bound"}, 1),
        ("gpusched_pending_pod_groups", {"queue": "a", "reason": "Gated"}, 2),
        ("gpusched_queue_allocated", {"queue": "a", "resource": "cpu"}, 5),
        ("gpusched_queue_fair_share", {"queue": "a", "resource": "cpu"}, 7),
        ("gpusched_evictions_total", {"action": "preempt", "reason": "Preempted"}, 1),
        ("gpusched_evicted_gpu_seconds_total", {}, 120),
        ("gpusched_repeated_evictions_total", {"action": "reclaim", "queue": "a"}, 1),
        ("gpusched_repeated_eviction_gpu_seconds_total", {}, 60),
        ("gpusched_fragmentation_ratio", {"level": "rack"}, 0.25),
        ("gpusched_gpus", {"type": "H100"}, 8),
        ("gpusched_idle_gpus", {"type": "H100"}, 3),
        ("gpusched_stranded_gpus", {"type": "H100", "reason": "Fragmented"}, 1),
        ("gpusched_held_gpus", {"queue": "a", "reason": "BelowMinimum"}, 2.5),
        ("gpusched_watch_relists_total", {"resource": "pods"}, 1),
        ("gpusched_rejected_objects_total", {"resource": "pods", "field": "spec.containers"}, 1),
        ("gpusched_leader", {}, 0),
    ],
)
def test_every_metric_of_the_contract(telemetry, name, labels, value):
    """Name, labels and value exactly as the contract has them."""
    feed(telemetry)
    assert rows(telemetry, name) == {tuple(sorted(labels.items())): value}


def test_every_metric_has_help_and_our_prefix(telemetry):
    """Nothing foreign and nothing unexplained is exported."""
    feed(telemetry)
    lines = telemetry.render().decode().splitlines()
    explained = {line.split()[2] for line in lines if line.startswith("# HELP")}
    assert all(len(line.split(None, 3)) == 4 for line in lines if line.startswith("# HELP"))
    for line in lines:
        name = re.split(r"[{ ]", line.removeprefix("# HELP ").removeprefix("# TYPE "))[0]
        assert name.startswith("gpusched_")
        base = re.sub(r"_(bucket|count|sum)$", "", name)
        assert name in explained or base in explained


def test_buckets_hold_the_latency_goal(telemetry):
    """The median goal of 30 ms and the p99 goal of 100 ms are bucket bounds."""
    telemetry.decision(0.03)
    bounds = {
        dict(labels)["le"]
        for labels in rows(telemetry, r"gpusched_decision_latency_seconds_bucket")
    }
    assert {"0.03", "0.1", "+Inf"} <= bounds


def test_an_observation_lies_in_the_first_bucket_that_reaches_it(telemetry):
    """Buckets are cumulative and their bounds inclusive; what is beyond all of them counts, too."""
    for seconds in (0.01, 0.0101, 7200.0):
        telemetry.decision(seconds)
    found = {
        dict(labels)["le"]: value
        for labels, value in rows(telemetry, "gpusched_decision_latency_seconds_bucket").items()
    }
    assert (found["0.005"], found["0.01"], found["0.02"]) == (0, 1, 2)
    assert (found["3600"], found["+Inf"]) == (2, 3)
    assert rows(telemetry, "gpusched_decision_latency_seconds_sum") == {
        (): pytest.approx(7200.0201)
    }


def test_rows_of_histograms_are_bounded(monkeypatch):
    """Beyond the last row that a metric may have, the rest is one row."""
    monkeypatch.setattr(limits, "METRIC_ROWS_MAX", 200)
    telemetry = Telemetry()
    for n in range(limits.METRIC_ROWS_MAX + 5):
        telemetry.solver(f"result-{n}", 0.1)
    got = rows(telemetry, "gpusched_solver_duration_seconds_count")
    assert len(got) == limits.METRIC_ROWS_MAX + 1
    assert got[(("result", OTHER),)] == 5


def test_queue_names_are_bounded(telemetry):
    """Beyond 500 queues the rest is one row, added up."""
    most = limits.QUEUE_NAMES_IN_METRICS_MAX
    for n in range(most + 7):
        telemetry.set_pending(f"q{n:04}", "Gated", 2)
    got = rows(telemetry, "gpusched_pending_pod_groups")
    assert len(got) == most + 1
    assert got[("queue", OTHER), ("reason", "Gated")] == 14


def test_types_of_gpus_are_bounded(telemetry):
    """Labels of nodes are free text: beyond the bound types are one row, added up."""
    most = limits.GPU_TYPES_IN_METRICS_MAX
    types = {f"type-{n:03}": 2 for n in range(most + 3)}
    lost = dict.fromkeys(((name, "Fragmented") for name in types), 1)
    telemetry.replace_gpus(total=types, idle={}, stranded=lost, held={})
    got = rows(telemetry, "gpusched_gpus")
    assert (len(got), got[(("type", OTHER),)]) == (most + 1, 6)
    lost_rows = rows(telemetry, "gpusched_stranded_gpus")
    assert lost_rows[("reason", "Fragmented"), ("type", OTHER)] == 3
    telemetry.replace_gpus(total={}, idle={}, stranded={}, held={})
    assert rows(telemetry, "gpusched_gpus") == {}


def test_rejected_fields_are_bounded(telemetry):
    """A storm of invented field names does not grow the metrics."""
    for n in range(2000):
        telemetry.rejected("pods", f"metadata.labels[{n}]")
    got = rows(telemetry, "gpusched_rejected_objects_total")
    assert len(got) <= 257
    assert sum(got.values()) == 2000


def test_rows_of_what_is_gone_disappear(telemetry):
    """A queue without waiting groups, or deleted, leaves no stale row."""
    telemetry.set_pending("a", "Gated", 2)
    telemetry.set_pending("a", "Gated", 0)
    telemetry.set_queue("b", allocated={"cpu": 1, "memory": 2}, fair_share={})
    telemetry.set_queue("b", allocated={"cpu": 3}, fair_share={})
    assert rows(telemetry, "gpusched_pending_pod_groups") == {}
    assert list(rows(telemetry, "gpusched_queue_allocated").values()) == [3]
    telemetry.replace_pending({("b", "Gated"): 4, ("c", "Gated"): 0})
    assert list(rows(telemetry, "gpusched_pending_pod_groups").values()) == [4]
    telemetry.forget_queue("b")
    assert rows(telemetry, "gpusched_pending_pod_groups") == {}
    assert rows(telemetry, "gpusched_queue_allocated") == {}


def test_label_values_are_escaped(telemetry):
    """A hostile name cannot add a line to the exposition."""
    telemetry.set_pending('x"} 1\nevil', "Gated", 1)
    assert not any(line.startswith("evil") for line in telemetry.render().decode().splitlines())


def test_bounded_names():
    """First come, first served, and stable."""
    names = BoundedNames(2)
    assert [names(n) for n in "abcab"] == ["a", "b", OTHER, "a", "b"]


@pytest.mark.parametrize(
    ("environ", "on"),
    [
        ({}, False),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, False),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "true"}, False),
    ],
)
def test_spans_are_off_unless_asked_for(environ, on):
    """Only the standard variables switch them on."""
    tracing = Tracing.from_environment(environ)
    assert tracing.on == on
    tracing.shutdown()


def test_an_unknown_exporter_is_a_configuration_error():
    """Not silently no spans."""
    with pytest.raises(ConfigError, match="jaeger"):
        Tracing.from_environment({"OTEL_TRACES_EXPORTER": "jaeger"})


def test_spans_nest():
    """A cycle has its actions as children, measured elsewhere or not."""
    exporter = InMemorySpanExporter()
    tracing = Tracing(exporter)
    with tracing.span("cycle", snapshot=7):
        with tracing.span("allocate"):
            pass
        tracing.finished("gang", began=10.0, ended=10.5, gang="ns/a")
    tracing.shutdown()
    spans = {span.name: span for span in exporter.get_finished_spans()}
    cycle = spans["cycle"].context.span_id
    assert {spans[n].parent.span_id for n in ("allocate", "gang")} == {cycle}
    assert spans["gang"].end_time - spans["gang"].start_time == 500_000_000
    assert spans["cycle"].attributes["snapshot"] == 7


def test_without_an_exporter_spans_are_nothing(telemetry):
    """The calls are there and do nothing."""
    tracing = telemetry.tracing
    assert not tracing.on
    with tracing.span("cycle", a=1):
        tracing.finished("gang", began=0.0, ended=1.0)
    tracing.shutdown()


def test_rows_of_counters_are_bounded(telemetry):
    """Given more rows of a metric than are shown, those beyond are one row with their sum."""
    before = sum(rows(telemetry, "gpusched_evictions_total").values())
    for n in range(limits.METRIC_ROWS_MAX + 5):
        telemetry.eviction(f"action-{n:06d}", "told")
    got = rows(telemetry, "gpusched_evictions_total")
    assert len(got) == limits.METRIC_ROWS_MAX + 1
    assert sum(got.values()) == before + limits.METRIC_ROWS_MAX + 5
    assert got[("action", "other"), ("reason", "other")] >= 5


def test_chains_of_any_length_are_few_rows(telemetry):
    """Given chains of two to a hundred evictions, then those of five and more are one row."""
    for length in range(2, 101):
        telemetry.eviction_chain(length, is_cycle=False)
    lengths = {"2": 1, "3": 1, "4": 1, "5+": 96}
    assert rows(telemetry, "gpusched_eviction_chains_total") == {
        (("cycle", cycle), ("length", length)): count if cycle == "false" else 0
        for length, count in lengths.items()
        for cycle in ("false", "true")
    }
