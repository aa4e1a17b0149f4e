"""The scenario of ten lines, from its text to the objects it makes."""

from __future__ import annotations

from pathlib import Path

from gpusched.lab.scenario.expansion.moments import unroll_timeline
from gpusched.lab.scenario.file.read import read_path
from gpusched.lab.scenario.model.scenario import JobIs

FIRST = """\
apiVersion: scenario.gpusched.io/v1alpha1
kind: Scenario
metadata: {name: first-gang}
spec:
  teaches: A gang starts as a whole.
  nodes: [{count: 2, gpus: 8}]
  timeline:
  - submit: {name: train, pods: 2, gpus: 8, runFor: 1m}
  expect:
  - {job: train, is: complete, by: 2m}
"""


def test_ten_lines_are_a_scenario(tmp_path: Path) -> None:
    """Two nodes, one Indexed Job of two pods, one expectation at a time: all with their lines."""
    file = tmp_path / "first.yaml"
    file.write_text(FIRST)
    (scenario,) = read_path(file)
    assert (scenario.name, str(scenario.place)) == ("first-gang", f"{file}:1")
    assert [each.obj["metadata"]["name"] for each in scenario.before] == ["node-0", "node-1"]
    assert scenario.before[0].obj["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    (expected,) = scenario.expect
    assert isinstance(expected.subject, JobIs)
    assert (expected.subject.job, expected.subject.state) == ("train", "complete")
    assert (expected.span.kind, expected.span.until_s, expected.place.line) == ("by", 120.0, 10)
    (moment,) = unroll_timeline(scenario)
    assert moment.sentence == "submit Job train: 2 pods, 8 GPUs each, runs 1m"
    (manifest,) = moment.act.manifests  # type: ignore[union-attr]
    job = manifest.obj
    assert (job["kind"], job["metadata"]["name"], job["spec"]["completions"]) == ("Job", "train", 2)
    template = job["spec"]["template"]
    assert template["metadata"]["annotations"] == {"gpusched.io/run-for": "1m"}
    assert template["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "8"}
