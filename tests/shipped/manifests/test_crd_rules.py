"""The rules of the CRDs, executed by the embedded server: what it takes and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gpusched.base.installed_files import path
from gpusched.devcluster.apimachinery.status import StatusError
from gpusched.devcluster.cluster import ClusterOptions, DevCluster, start

CASES = yaml.safe_load(Path(__file__).with_name("crd_cases.yaml").read_text())
KINDS = {
    "queues": "Queue",
    "podgroups": "PodGroup",
    "topologies": "Topology",
    "reservations": "Reservation",
}
GROUP = "scheduling.gpusched.io"
ALL = [
    pytest.param(plural, case, id=f"{plural}: {case['about']}")
    for plural, cases in CASES.items()
    for case in cases
]


@pytest.fixture
async def cluster():
    running = await start(ClusterOptions(stages=False, controllers=False))
    yield running
    await running.close()


def write(cluster: DevCluster, plural: str, case: dict[str, Any]) -> dict[str, Any]:
    """Create the object of a case; when it has an old state, create that and update it."""
    resource = f"{plural}.{GROUP}"
    namespace = "default" if plural == "podgroups" else None
    base = {
        "apiVersion": "scheduling.gpusched.io/v1alpha1",
        "kind": KINDS[plural],
        "metadata": {"name": case.get("name", "subject")},
    }
    if "old" not in case:
        return cluster.client.create(resource, base | {"spec": case["spec"]}, namespace)
    stored = cluster.client.create(resource, base | {"spec": case["old"]}, namespace)
    if "phase" in case:
        status = {"status": {"phase": case["phase"]}}
        name = stored["metadata"]["name"]
        stored = cluster.client.patch(resource, namespace, name, status, subresource="status")
    return cluster.client.update(resource, {**stored, "spec": case["spec"]})


@pytest.mark.parametrize(("plural", "case"), ALL)
async def test_rule(cluster, plural, case):
    """Each case of crd_cases.yaml is taken, or refused as invalid with its sentence."""
    if "refused" not in case:
        taken = write(cluster, plural, case)
        assert set(case["spec"]) <= set(taken["spec"])
        return
    with pytest.raises(StatusError) as refusal:
        write(cluster, plural, case)
    assert (refusal.value.code, refusal.value.reason) == (422, "Invalid")
    assert case["refused"] in str(refusal.value)


async def test_defaults_are_written_into_the_object(cluster):
    """A queue or a gang without any spec is complete: what it means can be read from it."""
    queue = write(cluster, "queues", {"spec": {}})
    gang = write(cluster, "podgroups", {"spec": {}})
    assert queue["spec"] == {
        "parent": "root",
        "weight": 1,
        "priority": 0,
        "reclaimable": True,
        "ordering": "Priority",
        "stopPolicy": "None",
        "minRuntime": "0s",
    }
    assert gang["spec"] == {"queue": "default"}


def messages(node: Any) -> set[str]:
    """The messages of all rules below a node of a CRD."""
    if isinstance(node, list):
        return set().union(*map(messages, node))
    if not isinstance(node, dict):
        return set()
    own = {rule["message"] for rule in node.get("x-kubernetes-validations", ())}
    return own.union(*map(messages, node.values()))


@pytest.mark.parametrize("plural", sorted(KINDS))
def test_every_rule_has_a_case_that_breaks_it(plural):
    """No rule goes untested: each message is expected by a case."""
    found = messages(yaml.safe_load((path("manifests/crds") / f"{plural}.yaml").read_text()))
    broken = [case["refused"] for case in CASES[plural] if "refused" in case]
    assert found
    assert not {text for text in found if not any(part in text for part in broken)}


EXAMPLES = sorted(path("manifests/examples").glob("*.yaml"))


@pytest.mark.parametrize("file", EXAMPLES, ids=[file.name for file in EXAMPLES])
async def test_example_is_taken_as_it_is(cluster, file):
    """Everything in manifests/examples can be created on a fresh cluster, and loses no field."""
    plurals = {kind: f"{plural}.{GROUP}" for plural, kind in KINDS.items()} | {
        "Job": "jobs.batch", "PriorityClass": "priorityclasses.scheduling.k8s.io",
    }  # fmt: skip
    for doc in yaml.safe_load_all(file.read_text()):
        namespace = doc["metadata"].get("namespace")
        stored = cluster.client.create(plurals[doc["kind"]], doc, namespace)
        assert set(doc) <= set(stored)
        assert set(doc.get("spec", ())) <= set(stored.get("spec", ()))
