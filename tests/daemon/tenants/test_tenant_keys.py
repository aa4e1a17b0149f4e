"""Whatever a tenant says in whatever key: the gang of somebody else starts, and the daemon goes on."""

from __future__ import annotations

import pytest

from tests.daemon.conftest import pod_spec
from tests.daemon.tenants.tenants import tenant
from tests.populations import one_of
from tests.shipped.manifests.security_table import metadata_keys

KEYS = metadata_keys()
AT_ONCE = 12
VALUES = ("0", "true", "99999999", "x" * 63, "a.b_c-9")
ANNOTATIONS = (*VALUES, "", "a/b", "{}", "[[", "-1", "1e9h", "ß\n", "9" * 5000)
"""The API server takes any text in an annotation, and short words in a label."""


@pytest.mark.parametrize(
    "keys",
    [KEYS[at : at + AT_ONCE] for at in range(0, len(KEYS), AT_ONCE)],
    ids=lambda keys: keys[0],
)
def test_any_value_of_any_key_leaves_others_alone(play, keys):
    """As label and as annotation, on a pod, on a Job and on the pods that a Job makes."""

    async def scenario(w):
        await w.start(nodes=8)  # each takes 110 pods, and theirs may run
        mallory = await tenant(w, "mallory")
        daemon = w.daemon()
        await w.until(lambda: daemon.leading)
        number = 0
        for key in keys:
            for place, values in (("labels", VALUES), ("annotations", ANNOTATIONS)):
                for value in one_of(3, values, first=keys.index(key) % 3):
                    number += 1
                    meta = {place: {key: value}}
                    body = {
                        "apiVersion": "v1", "kind": "Pod",
                        "metadata": {"name": f"p-{number}", "namespace": "mallory", **meta},
                        "spec": pod_spec(0),
                    }  # fmt: skip
                    await mallory.try_to("POST", mallory.path("pods"), body)
                    template = {"metadata": meta, "spec": pod_spec(0)}
                    job = {
                        "apiVersion": "batch/v1", "kind": "Job",
                        "metadata": {"name": f"j-{number}", "namespace": "mallory", **meta},
                        "spec": {"parallelism": 1, "suspend": number % 2 == 0, "template": template},
                    }  # fmt: skip
                    await mallory.try_to("POST", mallory.path("batch/v1/jobs"), job)
        assert len(w.client.list("pods", "mallory")) > number / 2
        await w.clock.sleep(5)
        shares = [key for key in keys if "gpu" in key.rpartition("/")[2]]
        for pod in w.client.list("pods", "mallory") if shares else ():
            if shares[0] in str(pod["metadata"]):  # they have a part of a GPU, as they may
                w.client.delete("pods", "mallory", pod["metadata"]["name"], grace_s=0)
        w.gang("honest", 2)
        await w.until(lambda: len(w.running("honest")) == 2, within=20)
        assert daemon.leading
        assert daemon.app.readiness() == (True, "leader")
        await daemon.stop()

    play(scenario)


FIELDS = (
    {"minMember": 10_000},
    {"minMember": 2**31},
    {"minTaskMember": {"x": 10_000}},
    {"subGroups": [{"name": f"s{n}", "minMember": 100} for n in range(50)], "minSubGroups": 50},
    {"subGroups": [{"name": "s", "minMember": 1}], "minSubGroups": 50},
    {"topology": {"required": "nowhere", "preferred": "x" * 300}},
    {"topology": {"required": "kubernetes.io/hostname", "maxWait": "1000000h"}},
    {"expectedDuration": "1ns"},
    {"expectedDuration": "100000000h"},
    {"expectedDuration": "-1h"},
    {"preemptible": False, "minRuntime": "2000000h"},
    {"minRuntime": "soon"},
    {"disruption": {"mode": "Group", "checkpointInterval": "1ns"}},
    {"disruption": {"mode": "Nobody"}},
    {"minResources": {"nvidia.com/gpu": "9223372036854775807", "x": "1e300"}},
    {"scheduleTimeout": "100000000h"},
    {"queue": "../../root"},
    {"queue": "root"},
    {"queue": ""},
    {"priorityClassName": "nobody"},
    {"priorityClassName": "system-node-critical"},
    {"unknown": {"deep": [[[[[]]]]]}},
)


def test_any_field_of_a_pod_group_leaves_others_alone(play):
    """Each by itself, with a pod that asks for a GPU."""

    async def scenario(w):
        await w.start(nodes=5)
        mallory = await tenant(w, "mallory")
        daemon = w.daemon()
        await w.until(lambda: daemon.leading)
        for number, fields in enumerate(FIELDS):
            body = {
                "apiVersion": "scheduling.gpusched.io/v1alpha1", "kind": "PodGroup",
                "metadata": {"name": f"g-{number}", "namespace": "mallory"},
                "spec": {"queue": "default", "minMember": 1, **fields},
            }  # fmt: skip
            path = mallory.path("scheduling.gpusched.io/v1alpha1/podgroups")
            await mallory.try_to("POST", path, body)
            labels = {"gpusched.io/pod-group": f"g-{number}"}
            await mallory.pod(f"p-{number}", gpus=1, labels=labels)
        await w.clock.sleep(5)
        w.gang("honest", 2)
        await w.until(lambda: len(w.running("honest")) == 2, within=20)
        assert daemon.app.readiness() == (True, "leader")
        await daemon.stop()

    play(scenario)
