"""Every query of every panel and alert, asked of a Prometheus that has the metrics of a played cluster.

A daemon plays a quarter of an hour: gangs start, wait, lose members to others, cannot be read. What no healthy
daemon has is told by another replica's telemetry, by the methods that would tell it.
"""

from __future__ import annotations

import re
import shutil
from copy import deepcopy

import pytest

from gpusched.io.observe.telemetry import Telemetry
from tests.ci_scripts import ci_script
from tests.daemon.conftest import QUEUES
from tests.daemon.monitoring.recorded_metrics import (
    STEP_S,
    Prometheus,
    RecordedMetrics,
    prometheus_of,
)

pytestmark = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="needs prometheus",
)
monitoring = ci_script("monitoring")
MINUTES = 15
VARIABLES = {
    "$__rate_interval": "2m", "$namespace": "default", "$gang": "low", "$queue": ".*",
    "$resource": ".*", "$type": ".*",
}  # fmt: skip
FIRE_IN_THE_PLAY = {"GpusStranded", "GpusIdleWhileGangsWait"}
"""Alerts whose condition holds at some time of it: a node is cordoned, and of two nodes that a gang had one is
left idle by whom it was evicted for."""


def filled(expr: str) -> str:
    """A query with its variables as Grafana would fill them in."""
    for name, value in VARIABLES.items():
        expr = expr.replace(name, value)
    assert "$" not in expr, expr
    return expr


class BrokenHistory:
    """A file that cannot be written."""

    written = 3
    lost = 2
    is_well = False


def troubled() -> Telemetry:
    """A replica that stands by and tells of all that may go wrong."""
    told = Telemetry()
    told.replace_gpus(total={}, idle={}, stranded={}, held={("research", "BelowMinimum"): 2})
    told.set_leader(leading=True)
    told.solver("OPTIMAL", 0.3, 0.02)
    told.evicted_again("preempt", "research", 60)
    told.eviction_chain(2, is_cycle=True)
    told.solver_lost("crash")
    told.replace_degraded(["evictions"])
    told.replace_set_aside({"gang": 2})
    told.contained("gang", "allocate")
    told.plugin_faults("drf", "gang_order", 3)
    told.set_quarantined([("drf", "gang_order")])
    told.set_crashes(2)
    told.relisted("pods")
    told.events_lost("pods", "deleted")
    told.cache_reset("restored")
    told.config_reload("refused")
    told.set_config("abc", refused=True)
    told.throttled()
    told.loop_blocked()
    told.show_history(BrokenHistory())
    return told


async def quarter_of_an_hour(w, recorded):
    """One leader on two nodes and a cordoned one; every 15 s it is scraped, as are its pods."""
    await w.start(nodes=0)
    for name in ("a", "b"):
        w.node(name, **{"nvidia.com/gpu.product": "H100"})
    w.node("c", **{"nvidia.com/gpu.product": "A100"})
    w.client.patch("nodes", None, "c", {"spec": {"unschedulable": True}})
    w.client.create(
        "priorityclasses.scheduling.k8s.io", {"metadata": {"name": "high"}, "value": 1000}
    )
    w.client.create(
        QUEUES,
        {
            "apiVersion": "scheduling.gpusched.io/v1alpha1",
            "kind": "Queue",
            "metadata": {"name": "research"},
            "spec": {"deserved": {"nvidia.com/gpu": "8"}, "budget": {"gpuHours": 100}},
        },
    )
    daemon = w.daemon()
    w.group("low", minMember=2, queue="research")
    w.job("low", 2, group="low")
    for minute in range(MINUTES):
        if minute == 3:
            w.gang("next", 2)
        if minute == 5:
            w.group("high", minMember=1, queue="research", priorityClassName="high")
            w.job("high", 1, group="high")
        if minute == 6:
            w.pod("odd", annotations={"gpusched.io/min-member": "many"})
        for _ in range(60 // STEP_S):
            await w.clock.sleep(STEP_S)
            now = w.clock.now()
            recorded.scrape(daemon.app.telemetry.render(), now, instance="gpusched-0:8080")
            recorded.add_pods(w.pods(), now)
    assert daemon.leading


def with_trouble_beside(recorded: RecordedMetrics) -> RecordedMetrics:
    """The play, and a replica in trouble at each of its times."""
    found = deepcopy(recorded)
    other = troubled()
    for at in sorted(set(recorded.times)):
        other.start_compared("research", "Announced", error_s=12.0, wait_s=90.0)
        other.start_ranged("research", held=False)
        other.start_ranged("research", held=True)  # again and again, as a rate needs it
        other.gang_ran("research", "Preempted", 90.0)
        other.gang_evicted("research", 2)
        found.scrape(other.render(), at, instance="gpusched-1:8080")
    other.shutdown()
    return found


def silent_queries(asked: Prometheus, *, trouble: bool) -> list[str]:
    """Queries of panels, about trouble or not, that have no series, no number, or not the legend's labels."""
    silent = []
    for name, told in monitoring.dashboards().items():
        for panel in told["panels"]:
            if panel.get("trouble", False) is not trouble:
                continue
            for legend, expr in monitoring.queries(panel).items():
                series = asked.series(filled(expr))
                numbers = [value for each in series for _, value in each["values"]]
                labels = re.findall(r"{{(\w+)}}", legend)
                named = all(each["metric"].get(label) for each in series for label in labels)
                if not named or all(value == "NaN" for value in numbers):
                    silent.append(f"{name}: {panel['title']}: {expr}")
    return silent


def queries() -> list[str]:
    """All queries of panels, alerts and variables."""
    found = [rule["expr"] for rule in monitoring.alerts()]
    for each in monitoring.dashboards().values():
        found += each.get("variables", {}).values()
        found += [expr for panel in each["panels"] for expr in panel["queries"].values()]
    return found


def test_every_query_is_answered(play, tmp_path):
    """Panels by the play alone, those about trouble with trouble beside; alerts hold as they should."""
    # given: a quarter of an hour of a daemon's life
    recorded = RecordedMetrics()
    play(lambda w: quarter_of_an_hour(w, recorded))
    # when, then: each query of a panel has series with the labels of its legend
    well, trouble = tmp_path / "well", tmp_path / "trouble"
    well.mkdir()
    trouble.mkdir()
    with prometheus_of(recorded, well) as asked:
        assert silent_queries(asked, trouble=False) == []
        holding = {rule["alert"] for rule in monitoring.alerts() if asked.series(rule["expr"])}
    with prometheus_of(with_trouble_beside(recorded), trouble) as asked:
        assert silent_queries(asked, trouble=True) == []
    # then: conditions of alerts hold where something is wrong in the play, and nowhere else
    assert holding == FIRE_IN_THE_PLAY
    # then: a misspelt name, which would be silent for ever, is none of any metric
    known = recorded.names | with_trouble_beside(recorded).names
    asked_for = set(re.findall(r"\b(?:gpusched|kube)_\w+", " ".join(queries())))
    assert len(asked_for) > 30
    assert asked_for - known == set()
    # then: each metric of the daemon is in a panel or an alert; former names apart
    families = recorded.families | with_trouble_beside(recorded).families
    assert len(families) > 30
    assert {name for name in families if name not in " ".join(queries())} == set()
