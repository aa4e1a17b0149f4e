"""What the definitions refuse is told as the embedded API server tells it, which shares no code with us."""

from __future__ import annotations

import pytest

from gpusched.advice.submission.definition_rules import definition_faults
from gpusched.devcluster import cluster as devcluster
from gpusched.devcluster.apimachinery.status import StatusError
from gpusched.lab.virtual_time.loop import run_virtual
from tests.advice.clusters import API

WRONG = [
    ("PodGroup", {"minMember": 0}),
    ("PodGroup", {"minMember": 20000}),
    ("PodGroup", {"minMember": "x"}),
    ("PodGroup", {"queue": ""}),
    ("PodGroup", {"queue": "q" * 254}),
    ("PodGroup", {"preemptible": "yes"}),
    ("PodGroup", {"subGroups": {}}),
    ("PodGroup", {"subGroups": [{"minMember": 1}]}),
    ("PodGroup", {"minMember": 2, "minTaskMember": {"w": 3}}),
    ("PodGroup", {"minSubGroups": 2}),
    ("PodGroup", {"expectedDuration": "2 hours"}),
    ("Queue", {"weight": -1}),
    ("Queue", {"ordering": "Oldest"}),
    ("Queue", {"stopPolicy": "Maybe"}),
    ("Queue", {"minRuntime": "soon"}),
]
RIGHT = [
    ("PodGroup", {}),
    ("PodGroup", {"minMember": 3, "minTaskMember": {"w": 3}, "expectedDuration": "90m"}),
    ("PodGroup", {"minMember": None, "gpuTypes": {"speeds": {"h100": "1.0"}}}),
    ("Queue", {"deserved": {"nvidia.com/gpu": "8", "cpu": 4}, "ordering": "StrictFifo"}),
]


def manifest(kind, spec):
    """An object of one of our kinds."""
    return {"apiVersion": API, "kind": kind, "metadata": {"name": "x", "namespace": "default"}, "spec": spec}  # fmt: skip


@pytest.fixture(scope="module")
def refusals():
    """What the embedded API server says of each, empty where it takes it."""

    async def main(clock):
        cluster = await devcluster.start(devcluster.ClusterOptions(clock=clock, port=0))
        try:
            return [said(cluster.client, kind, spec) for kind, spec in (*WRONG, *RIGHT)]
        finally:
            await cluster.close()

    def said(client, kind, spec):
        resource = f"{kind.lower()}s.scheduling.gpusched.io"
        body = manifest(kind, spec)
        if kind == "Queue":
            del body["metadata"]["namespace"]
        try:
            client.create(resource, body)
        except StatusError as error:
            return str(error)
        name = body["metadata"]
        client.delete(resource, name.get("namespace", ""), name["name"])
        return ""

    return run_virtual(main, limit_s=60.0)


def test_what_is_refused_is_told_in_the_words_of_the_server(refusals):
    for (kind, spec), said in zip(WRONG, refusals, strict=False):
        found = [*definition_faults(manifest(kind, spec))]
        assert found, spec
        assert all(each in said for each in found), (found, said)


def test_what_it_takes_is_not_refused(refusals):
    assert refusals[len(WRONG) :] == [""] * len(RIGHT)
    assert [[*definition_faults(manifest(kind, spec))] for kind, spec in RIGHT] == [[]] * len(RIGHT)


def test_an_unknown_field_is_told_with_the_one_that_was_meant():
    """Given a misspelt field, which kubectl refuses before it asks the server."""
    (found,) = definition_faults(manifest("PodGroup", {"minMembers": 2}))
    assert found == 'unknown field "spec.minMembers"; did you mean "minMember"'
    assert not [*definition_faults({"apiVersion": "v1", "kind": "Pod", "spec": {"x": 1}})]
