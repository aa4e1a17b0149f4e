"""Changes at moments of a simulated cluster, and what its record says of them."""

from __future__ import annotations

import attrs
import pytest

from gpusched.api.meta.identity import ObjectKey
from gpusched.engine.from_snapshot import start_from_snapshot
from gpusched.engine.simulation import SimulationCase, run_simulation
from gpusched.engine.timed_changes import (
    CreateObjects,
    EditObject,
    EmptyNodes,
    LoseNodes,
    MarkNodes,
)
from gpusched.engine.world import SimulatedDelays
from gpusched.io.recordings.snapshot_file import read_snapshot
from gpusched.lab.report.statistics.over_time import offered_amounts
from gpusched.lab.whatif.change_plan import ChangeRequest, plan_changes
from tests.advice.clusters import NOW, node, queue, write_file
from tests.advice.submission.device_manifests import (
    claim_template,
    claiming_job,
    device_class,
    slice_of,
)
from tests.engine.engine_cases import QUICK
from tests.lab.whatif.cases import SPACE, job

HOUR_S = 3600.0


@pytest.fixture
def play(tmp_path):
    """Plays a cluster that was recorded, with changes."""

    def played(objects, changes, *, later_s=0.0, until=12 * HOUR_S):
        path = write_file(tmp_path / "cluster.json", [SPACE, queue("research"), *objects])
        snapshot = attrs.evolve(read_snapshot(str(path)), taken_at=NOW + later_s)
        start = start_from_snapshot(snapshot)
        pace = SimulatedDelays(start_s=1.0, stop_s=30.0)
        return run_simulation(
            SimulationCase(
                name="test", config=QUICK, objects=start.objects, changes=changes, until=until,
                pace=pace, epoch=start.epoch,
            )
        )  # fmt: skip

    return played


def test_work_of_before_the_beginning_is_lost_with_an_eviction(play):
    """Given a Job that had run for an hour when it was recorded, what is evicted begins anew."""
    # Given a Job of four hours that has run for one
    objects = [node("gpu-0"), node("gpu-1"), *job("llm", 1, 8, on=["gpu-0"], expects="4h")]
    # When its node is emptied an hour later
    drain = EmptyNodes(at=HOUR_S, nodes=("gpu-0",), message="drained")
    record = play(objects, [drain], later_s=HOUR_S)
    # Then two hours of eight GPUs are lost, and it runs four hours from its new start
    (eviction,) = record.evictions
    assert eviction.lost == 2 * 3600 * 8000
    again = record.pods[1]
    assert again.bound == pytest.approx(HOUR_S + 30, abs=1)
    assert again.ended - again.running == pytest.approx(4 * HOUR_S, abs=1)


def test_a_job_that_is_left_alone_ends_when_it_would(play):
    objects = [node("gpu-0"), *job("llm", 1, 8, on=["gpu-0"], expects="4h")]
    record = play(objects, [], later_s=HOUR_S)
    assert record.pods[0].ended == pytest.approx(3 * HOUR_S, abs=1)


def test_the_record_knows_when_nodes_were_there(play):
    """Lost, added, cordoned and kept nodes offer GPUs only while they can be used."""
    # Given four nodes and nothing that runs
    objects = [node(f"gpu-{each}") for each in range(3)]
    cordon = EditObject(
        at=2 * HOUR_S, plural="nodes", key=ObjectKey("", "gpu-1"),
        edit=lambda obj: {**obj, "spec": {"unschedulable": True}},
    )  # fmt: skip
    changes = [
        LoseNodes(at=HOUR_S, nodes=("gpu-0",), message="lost"),
        cordon,
        MarkNodes(at=3 * HOUR_S, nodes=("gpu-2",), is_usable=False),
        MarkNodes(at=4 * HOUR_S, nodes=("gpu-2",), is_usable=True),
        CreateObjects(at=5 * HOUR_S, objects=(node("gpu-9"),)),
    ]
    # When they are played, then GPUs are offered as the changes say
    offered = offered_amounts(play(objects, changes, until=6 * HOUR_S))
    moments = [offered.values[offered.times <= (hour + 0.5) * HOUR_S][-1] for hour in range(6)]
    assert moments == [24, 16, 8, 0, 8, 16]


def test_a_lost_node_takes_gangs_along_that_their_controllers_make_anew(play):
    objects = [node("gpu-0"), node("gpu-1"), *job("llm", 2, 4, on=["gpu-0", "gpu-0"], expects="2h")]
    record = play(objects, [LoseNodes(at=HOUR_S, nodes=("gpu-0",), message="lost")])
    assert [each.why for each in record.evictions] == ["NodeLost", "NodeLost"]
    assert [pod.node for pod in record.pods] == ["gpu-0", "gpu-0", "gpu-1", "gpu-1"]
    assert [pod.gone for pod in record.pods[:2]] == [HOUR_S, HOUR_S]
    assert all(pod.end == "Succeeded" for pod in record.pods[2:])


def test_an_added_node_has_the_devices_of_the_node_that_it_is_like():
    """Given a Job whose two pods claim a device each and one node with one, then it starts when another one comes."""
    # Given
    objects = [
        SPACE, queue("a"), node("n0", gpus=0), device_class(), slice_of("n0", 1),
        *(with_namespace(each) for each in (claim_template(), claiming_job(2, suspend=True))),
    ]  # fmt: skip
    added = ChangeRequest(option="--add-nodes", words="1:like=n0", since="+1h")
    # When
    plan = plan_changes([added], objects, now=NOW)
    unchanged, changed = (
        run_simulation(
            SimulationCase(
                name="played", config=QUICK, objects=objects, until=2 * HOUR_S, epoch=NOW,
                changes=changes,
            )
        )
        for changes in ((), plan.changes)
    )  # fmt: skip
    # Then
    assert [each.started for each in unchanged.jobs] == [None]
    assert [each.started for each in changed.jobs] == [pytest.approx(HOUR_S, abs=60)]


def with_namespace(obj):
    """The manifest in namespace ``team``."""
    return {**obj, "metadata": {**obj["metadata"], "namespace": "team"}}
