"""Whole scenarios on the embedded cluster: the daemon, the timeline, the judge, the record."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent, indent

import pytest

from gpusched.base import installed_files
from gpusched.base.errors import ConfigError
from gpusched.devcluster.cluster import ClusterOptions, start
from gpusched.engine.run_record import LifeEnd
from gpusched.lab.scenario.file.read import read_path
from gpusched.lab.scenario.model.scenario import Scenario
from gpusched.lab.scenario.play.on_embedded import play_embedded
from gpusched.lab.scenario.play.run import ScenarioRun

HEAD = """\
apiVersion: scenario.gpusched.io/v1alpha1
kind: Scenario
metadata: {name: told}
spec:
  teaches: Something.
"""


def read(folder: Path, text: str) -> Scenario:
    file = folder / "told.yaml"
    file.write_text(HEAD + indent(dedent(text), "  "), encoding="utf-8")
    (scenario,) = read_path(file)
    return scenario


def run(folder: Path, text: str) -> ScenarioRun:
    return play_embedded(read(folder, text))


def failures(found: ScenarioRun) -> list[str]:
    assert found.record is not None
    return [
        *(verdict.seen for verdict in found.verdicts if not verdict.ok),
        *(each.sentence for each in found.record.broken),
        *(each.trouble for each in found.troubles),
        found.record.unfinished,
        found.fault,
    ]


def test_the_first_scenario_has_a_record_and_a_verdict() -> None:
    """A gang of two pods starts at once, runs its minute, and the run is over soon after."""
    (scenario,) = read_path(installed_files.path("kwok-scenarios") / "first.yaml")

    found = play_embedded(scenario)

    assert found.ok
    assert found.record is not None
    (job,) = found.record.jobs
    assert (job.key, job.kind, job.size, job.gpus) == ("default/train", "Job", 2, 16_000)
    assert job.end is LifeEnd.SUCCEEDED
    assert job.started is not None
    assert job.started < 0.1
    assert job.ready == 1
    assert 61 <= (job.ended or 0) <= 62
    assert {pod.slots for pod in found.record.pods} == {tuple(range(8))}
    assert found.record.seconds < 75


def test_the_same_seed_gives_the_same_run_in_another_process_too() -> None:
    """Byte for byte, whatever the hash seed of the interpreter; another seed another run."""
    (scenario,) = read_path(installed_files.path("kwok-scenarios") / "first.yaml")
    said = (
        "from pathlib import Path; from gpusched.lab.scenario.file.read import read_path;"
        "from gpusched.lab.scenario.play.on_embedded import play_embedded;"
        f"s = read_path(Path({str(scenario.place.file)!r}))[0];"
        "print(play_embedded(s).record.digest)"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "77"}

    here = play_embedded(scenario)
    there = subprocess.run(
        [sys.executable, "-c", said], env=environment, check=True, capture_output=True, text=True
    ).stdout.strip()

    assert here.record is not None
    assert here.record.digest == there


def test_acts_of_all_kinds_are_done_in_their_time(tmp_path: Path) -> None:
    """Namespaces come on demand; nodes are drained, fail and return; workloads are scaled."""
    found = run(
        tmp_path,
        """
        nodes: [{name: n, count: 3, gpus: 8}]
        timeline:
        - submit: {kind: Deployment, name: serve, namespace: web, pods: 2, gpus: 8}
        - at: 5s
          cordon: n-2
        - at: 6s
          scale: {kind: Deployment, name: serve, namespace: web, replicas: 3}
        - at: 20s
          uncordon: n-2
        - at: 30s
          drain: n-0
        - at: 60s
          uncordon: n-0
        - at: 61s
          fail: {node: n-1, how: notReady, for: 30s}
        - at: 120s
          patch: {kind: Deployment, name: serve, namespace: web,
                  merge: {metadata: {labels: {seen: "yes"}}}}
        - at: 130s
          delete: {kind: Deployment, name: serve, namespace: web}
        expect:
        - {job: serve, namespace: web, pods: 2, at: 15s}
        - {count: {kind: Pod, namespace: web}, where: {.status.phase: Running}, equals: 3, at: 29s}
        - {count: {kind: Pod, namespace: web}, where: {.spec.nodeName: n-0}, equals: 1, at: 29s}
        - {count: {kind: Pod, namespace: web}, where: {.spec.nodeName: n-0}, equals: 0, at: 59s}
        - {object: {kind: Node, name: n-1}, condition: Ready=False, at: 80s}
        - {object: {kind: Node, name: n-1}, condition: Ready, by: 100s}
        - {object: {kind: Deployment, name: serve, namespace: web}, path: .metadata.labels.seen,
           equals: "yes", at: 125s}
        - {job: serve, namespace: web, is: gone}
        """,
    )
    assert "".join(failures(found)) == ""
    assert found.record is not None
    spans = {node.name: [each.usable for each in node.spans] for node in found.record.nodes}
    assert spans["n-1"] == [True, False, True]


def test_a_leader_that_is_killed_in_mid_commit_leaves_no_gang_in_part(tmp_path: Path) -> None:
    """Another daemon takes over and binds the rest; each pod is bound once."""
    found = run(
        tmp_path,
        """
        daemons: 2
        nodes: [{count: 4, gpus: 8}]
        timeline:
        - restart: {what: leader, afterWrites: 3, down: 60s}
        - at: 1s
          submit: {name: train, pods: 8, gpus: 4, runFor: 2m}
        - at: 5m
          restart: {what: apiserver, down: 10s}
        - at: 6m
          restart: {what: scheduler}
        - at: 7m
          submit: {name: later, pods: 4, gpus: 8, runFor: 10s}
        expect:
        - {job: train, pods: 8, by: 90s}
        - {job: train, is: complete, by: 5m}
        - {job: later, is: complete}
        """,
    )
    assert "".join(failures(found)) == ""
    assert found.record is not None
    assert found.record.counters["daemons"] == 4
    bound = sorted(pod.bound or 0 for pod in found.record.pods if pod.job == "default/train")
    assert bound[7] > bound[2] + 5, "the rest had to wait for another leader"


def test_what_cannot_be_done_fails_the_run_unless_it_may(tmp_path: Path) -> None:
    """A name that nobody has and an object that the server refuses are told with the act."""
    found = run(
        tmp_path,
        """
        nodes: [{count: 1, gpus: 8}]
        timeline:
        - {delete: {kind: Job, name: nobody}, unchecked: true}
        - submit: {name: once, runFor: 1m}
        - submit: {name: ones, runFor: 1m}
        - {at: 1s, every: 1s, count: 2, delete: {kind: Job, name: once}}
        - {at: 3s, apply: {apiVersion: v1, kind: ConfigMap, metadata: {name: "No Name"}}}
        """,
    )
    assert not found.ok
    assert found.record is not None
    assert "it may fail, and did: there is no Job nobody" in found.record.acts[0].sentence
    first, second = (each.trouble for each in found.troubles)
    assert first == 'there is no Job once: there are ones; did you mean "ones"?'
    assert "told.yaml" in second
    assert "No Name" in second


def test_a_run_that_never_ends_is_cut_with_what_it_was_at(tmp_path: Path) -> None:
    """Partial results are kept, and expectations judged as things are then."""
    found = run(
        tmp_path,
        """
        limit: 2m
        nodes: [{count: 1, gpus: 8}]
        timeline:
        - {submit: {name: long, pods: 1, gpus: 8, runFor: 1h}}
        expect:
        - {job: long, is: running}
        """,
    )
    assert not found.ok
    assert found.record is not None
    assert found.record.unfinished == (
        "it was cut at its limit of 2m: default/long still runs; raise limit, or say when it ends"
    )
    assert [verdict.ok for verdict in found.verdicts] == [True]


def test_who_can_never_start_does_not_hold_the_run_up(tmp_path: Path) -> None:
    """When nothing has happened for ten minutes, who waits will wait for ever."""
    found = run(
        tmp_path,
        """
        nodes: [{count: 1, gpus: 8}]
        timeline:
        - {submit: {name: wide, pods: 2, gpus: 8, runFor: 1m}}
        expect:
        - {job: wide, is: waiting, says: needs 2 pods}
        """,
    )
    assert found.ok
    assert found.record is not None
    assert found.record.seconds < 10, "the proof that it waits for ever is no part of the run"
    assert found.verdicts[0].at >= 600


def test_an_object_that_the_server_refuses_before_the_start_is_a_mistake_of_the_file(
    tmp_path: Path,
) -> None:
    """It is told with its place, and nothing is played."""
    with pytest.raises(ConfigError, match=r"told\.yaml:\d+: ConfigMap default/No Name: .*"):
        run(tmp_path, 'objects: [{apiVersion: v1, kind: ConfigMap, metadata: {name: "No Name"}}]')


GANGS = """\
nodes: [{count: 1, gpus: 8}]
objects:
- apiVersion: scheduling.k8s.io/VERSION
  kind: Workload
  metadata: {name: w}
  spec: {podGroupTemplates: [{name: t, schedulingPolicy: {gang: {minCount: 2}}}]}
"""


@pytest.mark.parametrize(("release", "version"), [("1.36", "v1alpha2"), ("'1.37'", "v1beta1")])
def test_a_scenario_asks_for_gangs_of_kubernetes(
    tmp_path: Path, release: str, version: str
) -> None:
    """Their kinds are served in the form of a release, and by no other cluster."""
    text = GANGS.replace("VERSION", version)
    asked = f"cluster: {{kubernetesGangs: {release}, featureGates: {{WorkloadWithJob: false}}}}\n"

    found = run(tmp_path, asked + text)

    assert failures(found) == ["", ""]
    with pytest.raises(ConfigError, match="Workload"):
        run(tmp_path, text)


async def test_a_scenario_among_manifests_is_passed_over_by_who_applies_them() -> None:
    """``gpusched devcluster --apply kwok-scenarios/first-gang`` makes its nodes and jobs."""
    folder = installed_files.path("kwok-scenarios") / "first-gang"

    cluster = await start(ClusterOptions(apply=[folder], stages=False, controllers=False))

    try:
        assert len(cluster.client.list("nodes")) == 16
        assert len(cluster.client.list("jobs.batch")) == 7
    finally:
        await cluster.close()
