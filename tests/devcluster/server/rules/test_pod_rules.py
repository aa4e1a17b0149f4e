"""Pods over HTTP: what is refused and in which words, what absent fields stand for."""

from __future__ import annotations

from typing import Any

import pytest

Obj = dict[str, Any]
PODS = "/api/v1/namespaces/default/pods"
GPU = "nvidia.com/gpu"


def pod(name: str = "p", *, container: Obj | None = None, **spec: Any) -> Obj:
    """A pod with one container."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i", **(container or {})}], **spec},
    }


def resources(**parts: Obj) -> Obj:
    """A container's resources."""
    return {"resources": parts}


NO_LIMIT = "spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources"
REFUSED: list[tuple[str, Obj, list[str]]] = [
    (
        "unknown resource",
        pod(container=resources(requests={"gpu": "1"})),
        [
            'spec.containers[0].resources.requests[gpu]: Invalid value: "gpu": must be a standard resource type or fully qualified',
            'spec.containers[0].resources.requests[gpu]: Invalid value: "gpu": must be a standard resource for containers',
        ],
    ),
    ("gpu without limit", pod(container=resources(requests={GPU: "1"})), [NO_LIMIT]),
    (
        "request above limit",
        pod(container=resources(requests={"cpu": "2"}, limits={"cpu": "1"})),
        [
            'spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1'
        ],
    ),
    (
        "odd huge pages",
        pod(container=resources(limits={"hugepages-2Mi": "3Mi", "cpu": "1"})),
        [
            'spec.containers[0].resources.limits[hugepages-2Mi]: Invalid value: "3Mi": 3Mi is not positive integer multiple of hugepages-2Mi',
            'spec.containers[0].resources.requests[hugepages-2Mi]: Invalid value: "3Mi": 3Mi is not positive integer multiple of hugepages-2Mi',
        ],
    ),
    (
        "dotted container name",
        pod(container={"name": "a.b"}),
        ['spec.containers[0].name: Invalid value: "a.b": must not contain dots'],
    ),
    (
        "long hostname",
        pod(hostname="h" * 64),
        [f'spec.hostname: Invalid value: "{"h" * 64}": must be no more than 63 characters'],
    ),
    (
        "restart policy",
        pod(restartPolicy="Sometimes"),
        [
            'spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"'
        ],
    ),
    (
        "deadline",
        pod(activeDeadlineSeconds=0),
        [
            "spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive"
        ],
    ),
    (
        "toleration",
        pod(tolerations=[{"key": "a", "operator": "Exists", "value": "v"}]),
        [
            "spec.tolerations[0].operator: Invalid value: \"v\": value must be empty when `operator` is 'Exists'"
        ],
    ),
    (
        "weight",
        pod(
            affinity={
                "nodeAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "weight": 101,
                            "preference": {
                                "matchExpressions": [{"key": "k", "operator": "Exists"}]
                            },
                        }
                    ]
                }
            }
        ),
        [
            "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: 101: must be in the range 1-100"
        ],
    ),
    (
        "empty affinity",
        pod(
            affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}},
        ),
        [
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: Required value: must have at least one node selector term"
        ],
    ),
    (
        "spread",
        pod(
            topologySpreadConstraints=[
                {"maxSkew": 0, "topologyKey": "zone", "whenUnsatisfiable": "Never"}
            ]
        ),
        [
            "spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
            'spec.topologySpreadConstraints[0].whenUnsatisfiable: Unsupported value: "Never": supported values: "DoNotSchedule", "ScheduleAnyway"',
        ],
    ),
    (
        "gates twice",
        pod(schedulingGates=[{"name": "a.io/x"}, {"name": "a.io/x"}]),
        ['spec.schedulingGates[1]: Duplicate value: "a.io/x"'],
    ),
    (
        "mount",
        pod(container={"volumeMounts": [{"name": "v", "mountPath": "/v"}]}),
        ['spec.containers[0].volumeMounts[0].name: Not found: "v"'],
    ),
    (
        "port",
        pod(container={"ports": [{"containerPort": 70000}]}),
        [
            "spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive"
        ],
    ),
    (
        "probe",
        pod(container={"livenessProbe": {"successThreshold": 2}}),
        [
            "spec.containers[0].livenessProbe: Required value: must specify a handler type",
            "spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1",
        ],
    ),
    (
        "init container",
        pod(initContainers=[{"name": "c", "image": "i", "lifecycle": {}}]),
        [
            'spec.initContainers[0].name: Duplicate value: "c"',
            "spec.initContainers[0].lifecycle: Forbidden: may not be set for init containers without restartPolicy=Always",
        ],
    ),
]


@pytest.mark.parametrize(
    ("body", "texts"), [(b, t) for _, b, t in REFUSED], ids=[r[0] for r in REFUSED]
)
async def test_a_wrong_pod_is_refused_in_the_servers_words(
    http: Any, body: Obj, texts: list[str]
) -> None:
    """Each wrong field is named once, in the server's order."""
    reply = await http.send("POST", PODS, body)
    joined = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    assert (422, f'Pod "p" is invalid: {joined}') == (reply.code, reply.message)


@pytest.mark.parametrize(
    ("meta", "text"),
    [
        (
            {"name": "p", "finalizers": ["mine"]},
            'metadata.finalizers[0]: Invalid value: "mine": name is neither a standard finalizer name nor is it fully qualified',
        ),
        (
            {"name": "p", "labels": {"a": "x" * 64}},
            f'metadata.labels: Invalid value: "{"x" * 64}": must be no more than 63 bytes',
        ),
        (
            {"name": "p", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "o"}]},
            'metadata.ownerReferences.uid: Invalid value: "": must not be empty',
        ),
    ],
)
async def test_wrong_metadata_is_refused(http: Any, meta: Obj, text: str) -> None:
    """Labels, owners and finalizers are checked like the spec."""
    reply = await http.send("POST", PODS, {**pod(), "metadata": meta})
    assert (422, f'Pod "p" is invalid: {text}') == (reply.code, reply.message)


async def test_absent_fields_are_filled_in(http: Any) -> None:
    """Volumes, probes, ports and references print what they stand for."""
    container = {
        "env": [
            {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "B", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
        ],
        "readinessProbe": {"httpGet": {"port": 80}},
        "ports": [{"containerPort": 80}],
        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
    }
    volumes = [{"name": "v"}, {"name": "c", "configMap": {"name": "x"}}]
    body = pod(container=container, volumes=volumes, serviceAccountName="bot", hostNetwork=True)
    spec = (await http.send("POST", PODS, body)).body["spec"]
    made = spec["containers"][0]
    assert made["env"][0]["valueFrom"]["fieldRef"] == {
        "fieldPath": "metadata.name",
        "apiVersion": "v1",
    }
    assert made["env"][1]["valueFrom"]["resourceFieldRef"]["divisor"] == "0"
    assert made["readinessProbe"]["httpGet"] == {"path": "/", "port": 80, "scheme": "HTTP"}
    assert made["ports"][0] == {"containerPort": 80, "hostPort": 80, "protocol": "TCP"}
    assert [
        spec["volumes"][0]["emptyDir"],
        spec["volumes"][1]["configMap"]["defaultMode"],
    ] == [{}, 420]
    assert spec["serviceAccount"] == "bot"


async def test_label_keys_become_the_pods_own_values(http: Any) -> None:
    """A spread constraint by matchLabelKeys counts only pods with this pod's value."""
    constraint = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "x"}},
        "matchLabelKeys": ["rev"],
    }
    body = pod(topologySpreadConstraints=[constraint])
    body["metadata"]["labels"] = {"rev": "7"}
    made = (await http.send("POST", PODS, body)).body["spec"]["topologySpreadConstraints"][0]
    wanted = [{"key": "rev", "operator": "In", "values": ["7"]}]
    assert wanted == made["labelSelector"]["matchExpressions"]


async def test_what_an_update_may_change(http: Any) -> None:
    """Images and more tolerations pass; other containers, gates and selectors do not."""
    await http.send(
        "POST", PODS, pod(schedulingGates=[{"name": "a.io/x"}], nodeSelector={"a": "1"})
    )
    for patch, wanted in (
        ({"nodeSelector": {"b": "2"}}, ""),
        (
            {"nodeSelector": {"a": "2"}},
            'spec.nodeSelector: Invalid value: {"a":"2","b":"2"}: only additions to spec.nodeSelector are allowed (no mutations or deletions)',
        ),
        (
            {"schedulingGates": [{"name": "a.io/x"}, {"name": "a.io/y"}]},
            "spec.schedulingGates[1].name: Forbidden: only deletion is allowed, but found new scheduling gate 'a.io/y'",
        ),
        (
            {"containers": [{"name": "c", "image": "j"}, {"name": "d", "image": "i"}]},
            "spec.containers: Forbidden: pod updates may not add or remove containers",
        ),
        ({"containers": [{"name": "c", "image": "j"}], "activeDeadlineSeconds": 30}, ""),
        (
            {"activeDeadlineSeconds": 40},
            "spec.activeDeadlineSeconds: Invalid value: 40: must be less than or equal to previous value",
        ),
        (
            {"tolerations": []},
            "",
        ),
    ):
        reply = await http.send(
            "PATCH", f"{PODS}/p", {"spec": patch}, media="application/strategic-merge-patch+json"
        )
        told = "" if reply.code == 200 else reply.message
        assert (f'Pod "p" is invalid: {wanted}' if wanted else "") == told


async def test_an_ended_container_stays_ended(http: Any) -> None:
    """Where pods do not restart, a container's end is final; unset times print as null."""
    await http.send("POST", PODS, pod(restartPolicy="Never"))
    media = "application/merge-patch+json"
    ended = {"name": "c", "state": {"terminated": {"exitCode": 1}}}
    reply = await http.send(
        "PATCH", f"{PODS}/p/status", {"status": {"containerStatuses": [ended]}}, media=media
    )
    assert reply.body["status"]["containerStatuses"][0] == {
        "name": "c",
        "state": {"terminated": {"exitCode": 1, "startedAt": None, "finishedAt": None}},
        "lastState": {},
        "ready": False,
        "restartCount": 0,
        "image": "",
        "imageID": "",
    }
    running = {"name": "c", "state": {"running": {}}}
    reply = await http.send(
        "PATCH", f"{PODS}/p/status", {"status": {"containerStatuses": [running]}}, media=media
    )
    text = "status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state"
    assert (422, f'Pod "p" is invalid: {text}') == (reply.code, reply.message)


async def test_one_address_is_also_a_list(http: Any) -> None:
    """A kubelet that writes podIP is understood as one that writes podIPs."""
    await http.send("POST", PODS, pod())
    media = "application/merge-patch+json"
    reply = await http.send(
        "PATCH", f"{PODS}/p/status", {"status": {"podIP": "10.0.0.1"}}, media=media
    )
    assert reply.body["status"]["podIPs"] == [{"ip": "10.0.0.1"}]


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"runtimeClassName": "gvisor"}, 'RuntimeClass "gvisor" not found'),
        (
            {"overhead": {"cpu": "1"}},
            "Pod Overhead set without corresponding RuntimeClass defined Overhead",
        ),
    ],
)
async def test_overhead_comes_from_a_runtime_class(http: Any, spec: Obj, why: str) -> None:
    """A class that does not exist, and overhead without one, are refused."""
    reply = await http.post(PODS, pod(**spec))
    assert (reply.code, reply.message) == (403, f'pods "p" is forbidden: pod rejected: {why}')


async def test_a_wrong_element_of_a_list_is_named_by_its_list(http: Any) -> None:
    """A text where a structure should stand is told with the structure that holds the list."""
    reply = await http.post(PODS, pod(schedulingGates=["a"]))
    assert reply.message.endswith(
        "json: cannot unmarshal string into Go struct field PodSpec.spec.schedulingGates "
        "of type v1.PodSchedulingGate"
    )
