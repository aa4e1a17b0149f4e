"""Tables: recorded columns and rows, pod summaries, ages, printer columns.

``data/recorded-tables.json`` holds four table answers of a real server.
"""

import datetime as dt
import json
from pathlib import Path

import pytest

from gpusched.devcluster.apiserver.reading.tables.ages import age_text, duration_text
from gpusched.devcluster.apiserver.reading.tables.json_path import JsonPathError, compile_path
from gpusched.devcluster.apiserver.reading.tables.table import columns_for, custom_columns, table

RECORDED = json.loads((Path(__file__).parent / "data/recorded-tables.json").read_text())
CRD = next(
    step["request"]["body"]
    for step in json.loads((Path(__file__).parent / "data/custom-resources.json").read_text())[
        "steps"
    ]
    if "request" in step
)
NOW = 1_700_000_000.0


def at(seconds_ago):
    """Timestamp of a moment so many seconds before NOW."""
    return dt.datetime.fromtimestamp(NOW - seconds_ago, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def headers(columns):
    made = table(columns, [], now=NOW, metadata={})["columnDefinitions"]
    return [(c["name"], c["type"], c["format"], c["priority"]) for c in made]


def cells(group, kind, obj):
    obj.setdefault("metadata", {}).setdefault("creationTimestamp", at(5))
    (row,) = table(columns_for(group, kind), [obj], now=NOW, metadata={})["rows"]
    return row["cells"]


@pytest.mark.parametrize(
    ("topic", "columns"),
    [
        ("pods-create", columns_for("", "Pod")),
        ("jobs", columns_for("batch", "Job")),
        ("nodes", columns_for("", "Node")),
        (
            "custom-resources",
            custom_columns(CRD["spec"]["versions"][0]["additionalPrinterColumns"]),
        ),
    ],
)
def test_recorded_columns(topic, columns):
    """P9, J5, C6: names, types, formats, priorities, descriptions and order are the recorded ones."""
    recorded = RECORDED[topic]["columnDefinitions"]
    assert table(columns, [], now=NOW, metadata={})["columnDefinitions"] == recorded


def test_recorded_custom_rows():
    """C6: integers stay numbers, dates become ages, rows carry metadata only."""
    recorded = RECORDED["custom-resources"]["rows"][0]
    columns = custom_columns(CRD["spec"]["versions"][0]["additionalPrinterColumns"])
    metadata = {**recorded["object"]["metadata"], "creationTimestamp": at(1)}
    obj = {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": metadata,
        "spec": {"size": 7},
        "status": {"phase": "Ready"},
    }
    made = table(columns, [obj], now=NOW, metadata={"resourceVersion": "6"})
    assert made["rows"] == [{**recorded, "object": {**recorded["object"], "metadata": metadata}}]
    assert (made["kind"], made["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert made["metadata"] == {"resourceVersion": "6"}
    described = [c["description"] for c in made["columnDefinitions"]][1:]
    recorded_columns = RECORDED["custom-resources"]["columnDefinitions"][1:]
    assert described == [c["description"] for c in recorded_columns]


def job(**status):
    return {
        "metadata": {"name": "j"},
        "spec": {
            "completions": 2,
            "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}},
            "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}},
        },
        "status": status,
    }


def test_recorded_job_rows():
    """J5: a failed job, a complete one and one not started look as recorded."""
    rows = {row["cells"][0]: row["cells"] for row in RECORDED["jobs"]["rows"]}
    failed = job(startTime=at(5), conditions=[{"type": "Failed", "status": "True"}])
    failed["spec"]["completions"] = 1
    assert cells("batch", "Job", failed)[1:7] == rows["j-dead"][1:7]
    done = job(
        succeeded=2,
        startTime=at(20),
        completionTime=at(17),
        conditions=[{"type": "Complete", "status": "True"}],
    )
    done["metadata"]["creationTimestamp"] = at(20)
    assert cells("batch", "Job", done)[1:7] == rows["j-idx"][1:7]
    suspended = job(conditions=[{"type": "Suspended", "status": "True"}])
    assert cells("batch", "Job", suspended)[1:4] == ["Suspended", "0/2", ""]


def test_jobs_without_completions():
    """A work queue shows its parallelism."""
    plain = job(succeeded=1)
    plain["spec"] |= {"completions": None, "parallelism": 3}
    assert cells("batch", "Job", plain)[2] == "1/1 of 3"


def test_recorded_pod_rows():
    """P9: a pending pod and a gated one look as recorded."""
    rows = {row["cells"][0]: row["cells"] for row in RECORDED["pods-create"]["rows"]}
    pod = {"spec": {"containers": [{"name": "c"}]}, "status": {"phase": "Pending"}}
    assert cells("", "Pod", pod)[1:4] == rows["p-lim"][1:4]
    assert cells("", "Pod", pod)[5:] == rows["p-lim"][5:]
    gate = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
    gated = {**pod, "status": {"phase": "Pending", "conditions": [gate]}}
    assert cells("", "Pod", gated)[1:4] == rows["p-gated"][1:4]


def container(state, *, name="c", ready=False, restarts=0, **more):
    return {"name": name, "state": state, "ready": ready, "restartCount": restarts, **more}


RUNNING = {"running": {}}
READY = {"type": "Ready", "status": "True"}


@pytest.mark.parametrize(
    ("status", "told"),
    [
        ({"phase": "Running", "containerStatuses": [container(RUNNING, ready=True)]},
         ["1/2", "Running", "0"]),
        ({"phase": "Pending", "containerStatuses": [
            container({"waiting": {"reason": "ContainerCreating"}})]},
         ["0/2", "ContainerCreating", "0"]),
        ({"phase": "Failed", "reason": "Evicted"}, ["0/2", "Evicted", "0"]),
        ({"phase": "Failed", "containerStatuses": [container({"terminated": {"exitCode": 3}})]},
         ["0/2", "ExitCode:3", "0"]),
        ({"phase": "Failed", "containerStatuses": [
            container({"terminated": {"exitCode": 137, "signal": 9}})]},
         ["0/2", "Signal:9", "0"]),
        ({"phase": "Running", "conditions": [READY], "containerStatuses": [
            container({"terminated": {"reason": "Completed", "exitCode": 0}}),
            container(RUNNING, name="d", ready=True)]},
         ["1/2", "Running", "0"]),
        ({"phase": "Running", "containerStatuses": [container(
            RUNNING, ready=True, restarts=2,
            lastState={"terminated": {"finishedAt": at(300)}})]},
         ["1/2", "Running", "2 (5m ago)"]),
        ({"phase": "Pending", "initContainerStatuses": [container(RUNNING, name="i")]},
         ["0/2", "Init:0/1", "0"]),
        ({"phase": "Pending", "initContainerStatuses": [
            container({"terminated": {"exitCode": 1, "reason": "Error"}}, name="i", restarts=1)]},
         ["0/2", "Init:Error", "1"]),
        ({"phase": "Running",
          "initContainerStatuses": [container({"terminated": {"exitCode": 0}}, name="i")],
          "containerStatuses": [container(RUNNING, ready=True)]},
         ["1/2", "Running", "0"]),
    ],
)  # fmt: skip
def test_pod_summaries(status, told):
    """Ready, status and restarts sum up the containers as kubectl users expect."""
    pod = {
        "spec": {"containers": [{"name": "c"}, {"name": "d"}], "initContainers": [{"name": "i"}]},
        "status": status,
    }
    assert cells("", "Pod", pod)[1:4] == told


def test_pods_being_deleted():
    """A pod being deleted says so unless it has ended; a lost node makes it unknown."""
    gone = {"metadata": {"deletionTimestamp": at(1)}, "spec": {"containers": [{}]}}
    assert cells("", "Pod", {**gone, "status": {"phase": "Running"}})[2] == "Terminating"
    assert cells("", "Pod", {**gone, "status": {"phase": "Succeeded"}})[2] == "Succeeded"
    lost = {"phase": "Running", "reason": "NodeLost"}
    assert cells("", "Pod", {**gone, "status": lost})[2] == "Unknown"


def test_sidecars_count_as_containers():
    """A restartable init container that started counts among the ready ones."""
    pod = {
        "spec": {
            "containers": [{"name": "c"}],
            "initContainers": [{"name": "s", "restartPolicy": "Always"}],
        },
        "status": {
            "phase": "Running",
            "initContainerStatuses": [container(RUNNING, name="s", ready=True, started=True)],
            "containerStatuses": [container(RUNNING, ready=True)],
        },
    }
    assert cells("", "Pod", pod)[1] == "2/2"


def test_finished_pods_are_marked():
    """Rows of finished pods carry a condition; others do not."""
    done = {"kind": "Pod", "metadata": {"name": "p"}, "status": {"phase": "Failed"}}
    running = {**done, "status": {"phase": "Running"}}
    (row,) = table(columns_for("", "Pod"), [running], now=NOW, metadata={}, include="None")["rows"]
    assert set(row) == {"cells"}
    (row,) = table(columns_for("", "Pod"), [done], now=NOW, metadata={}, include="None")["rows"]
    assert row["conditions"] == [
        {"type": "Completed", "status": "True", "reason": "Failed", "message": "The pod failed."}
    ]


def test_nodes():
    """A node's row tells readiness, cordon and roles."""
    node = {
        "metadata": {"labels": {"node-role.kubernetes.io/gpu": "", "kubernetes.io/role": "x"}},
        "spec": {"unschedulable": True},
        "status": {
            "conditions": [{"type": "Ready", "status": "Unknown"}],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            "nodeInfo": {"kubeletVersion": "v1"},
        },
    }
    assert cells("", "Node", node)[1:] == [
        "NotReady,SchedulingDisabled", "gpu,x", "5s", "v1", "10.0.0.1", "<none>",
        "<unknown>", "<unknown>", "<unknown>",
    ]  # fmt: skip
    recorded = RECORDED["nodes"]["rows"][0]["cells"]
    assert cells("", "Node", node)[1] == recorded[1]


@pytest.mark.parametrize(
    ("group", "kind", "obj", "told"),
    [
        ("", "ConfigMap", {"data": {"a": "1"}, "binaryData": {"b": ""}}, [2, "5s"]),
        ("", "Secret", {"type": "Opaque", "data": {"a": ""}}, ["Opaque", 1, "5s"]),
        ("", "ServiceAccount", {}, [0, "5s"]),
        ("", "Namespace", {"status": {"phase": "Active"}}, ["Active", "5s"]),
        ("", "ResourceQuota", {"status": {"hard": {"pods": "3", "limits.cpu": "1", "cpu": "2"},
                                          "used": {"pods": "1"}}},
         ["cpu: 0/2, pods: 1/3", "limits.cpu: 0/1", "5s"]),
        ("coordination.k8s.io", "Lease", {"spec": {"holderIdentity": "me"}}, ["me", "5s"]),
        ("scheduling.k8s.io", "PriorityClass", {"value": 7, "preemptionPolicy": "Never"},
         [7, False, "5s", "Never"]),
        ("policy", "PodDisruptionBudget",
         {"spec": {"minAvailable": 1}, "status": {"disruptionsAllowed": 2}},
         ["1", "N/A", 2, "5s"]),
        ("apps", "Deployment", {"spec": {"replicas": 3, "selector": {"matchLabels": {"a": "b"}}},
                                "status": {"readyReplicas": 1, "updatedReplicas": 2}},
         ["1/3", 2, 0, "5s", "", "", "a=b"]),
        ("apps", "ReplicaSet", {"spec": {"replicas": 3, "selector": {"matchExpressions": [
            {"key": "a", "operator": "In", "values": ["y", "x"]},
            {"key": "b", "operator": "Exists"}]}}, "status": {"replicas": 2}},
         [3, 2, 0, "5s", "", "", "a in (x,y),b"]),
    ],
)  # fmt: skip
def test_simple_kinds(group, kind, obj, told):
    """Each kind tells what its users look for."""
    assert cells(group, kind, {**obj, "metadata": {}})[1:] == told


@pytest.mark.parametrize(
    ("group", "event"),
    [
        ("", {"involvedObject": {"kind": "Pod", "name": "p"}, "message": " m \n", "count": 3,
              "firstTimestamp": at(60), "lastTimestamp": at(10),
              "source": {"component": "s", "host": "h"}}),
        ("events.k8s.io", {"regarding": {"kind": "Pod", "name": "p"}, "note": "m",
                           "eventTime": at(60), "reportingController": "s",
                           "reportingInstance": "h",
                           "series": {"count": 3, "lastObservedTime": at(10)}}),
    ],
)  # fmt: skip
def test_events_of_both_groups(group, event):
    """Both views of an event give the same row."""
    event |= {"metadata": {"name": "e"}, "type": "Normal", "reason": "R"}
    assert cells(group, "Event", event) == [
        "10s", "Normal", "R", "pod/p", "", "s, h", "m", "60s", 3, "e",
    ]  # fmt: skip


def test_what_rows_carry():
    """IncludeObject decides between nothing, metadata and the whole object."""
    obj = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {}}
    columns = columns_for("", "Pod")

    def carried(include):
        return table(columns, [obj], now=NOW, metadata={}, include=include)["rows"][0].get("object")

    assert carried("None") is None
    assert carried("Object") == obj
    assert carried("Metadata")["kind"] == "PartialObjectMetadata"
    assert table(columns, [obj], now=NOW, metadata={}, headers=False)["columnDefinitions"] is None


def test_kinds_without_columns_of_their_own():
    """They show their name and creation time; custom kinds their age."""
    assert [h[0] for h in headers(columns_for("x.io", "Thing"))] == ["Name", "Created At"]
    assert [h[0] for h in headers(custom_columns(None))] == ["Name", "Age"]


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (-5, "<invalid>"), (-1, "0s"), (0.9, "0s"), (119, "119s"), (120, "2m"), (200, "3m20s"),
        (600, "10m"), (3 * 3600 - 1, "179m"), (3 * 3600, "3h"), (3 * 3600 + 60, "3h1m"),
        (8 * 3600, "8h"), (47 * 3600, "47h"), (48 * 3600, "2d"), (49 * 3600, "2d1h"),
        (8 * 86400, "8d"), (729 * 86400, "729d"), (730 * 86400, "2y"), (731 * 86400, "2y1d"),
        (9 * 365 * 86400, "9y"),
    ],
)  # fmt: skip
def test_ages(seconds, told):
    """Durations get coarser as they grow."""
    assert duration_text(seconds) == told


def test_ages_of_odd_timestamps():
    """No time is unknown; fractions and offsets are read."""
    assert age_text(None, NOW) == "<unknown>"
    assert age_text("soon", NOW) == "<unknown>"
    assert age_text("2023-11-14T23:13:10.500000+01:00", NOW) == "9s"


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".spec.size", [3]),
        ("spec.size", [3]),
        ("{.spec.size}", [3]),
        (".spec['a.b']", ["x"]),
        (r".spec.a\.b", ["x"]),
        (".spec.list[0].n", [1]),
        (".spec.list[-1].n", [2]),
        (".spec.list[*].n", [1, 2]),
        ('.spec.list[?(@.t=="b")].n', [2]),
        (".spec.list[?(@.n!=1)].t", ["b"]),
        (".spec.list[?(@.t)].n", [1, 2]),
        (".spec.nope.deeper", []),
        (".spec.list[9]", []),
    ],
)
def test_json_paths(path, found):
    """The paths that printer columns use find what they name."""
    doc = {"spec": {"size": 3, "a.b": "x", "list": [{"n": 1, "t": "a"}, {"n": 2, "t": "b"}]}}
    assert compile_path(path)(doc) == found


@pytest.mark.parametrize("path", [".a[", ".a[1:2:-1]", ".a[?(@.b==x)]"])
def test_unsupported_json_paths(path):
    """A path outside the supported part is refused, not read as nothing."""
    with pytest.raises(JsonPathError):
        compile_path(path)


@pytest.mark.parametrize(
    ("kind", "value", "cell"),
    [
        ("integer", 3, 3), ("integer", 3.0, 3), ("integer", "3", None), ("integer", True, None),
        ("number", 1.5, 1.5), ("boolean", True, True), ("boolean", "x", None),
        ("date", at(120), "2m"), ("date", "x", "<invalid>"), ("string", "x", "x"),
        ("string", 3, "3"), ("string", ["a", 1], '["a",1]'), ("string", False, "false"),
    ],
)  # fmt: skip
def test_typed_cells(kind, value, cell):
    """A cell has its column's type or is null."""
    columns = custom_columns([{"name": "V", "type": kind, "jsonPath": ".v"}])
    obj = {"apiVersion": "x/v1", "kind": "T", "metadata": {"name": "t"}, "v": value}
    assert table(columns, [obj], now=NOW, metadata={})["rows"][0]["cells"] == ["t", cell]


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".list[-1:].n", [3]),
        (".list[:2].n", [1, 2]),
        (".list[0,2].n", [1, 3]),
        (".list[?(@.n>1)].n", [2, 3]),
        (".map['a','b']", [1, 2]),
        ("..n", [1, 2, 3]),
    ],
)
def test_slices_unions_and_comparisons(path, found):
    """What printer columns use beside plain fields."""
    document = {"list": [{"n": 1}, {"n": 2}, {"n": 3}], "map": {"a": 1, "b": 2}}
    assert compile_path(path)(document) == found


def test_a_column_that_cannot_be_read_ends_the_columns():
    """A real server shows the columns before it."""
    raw = [
        {"name": "A", "type": "string", "jsonPath": ".a"},
        {"name": "B", "type": "string", "jsonPath": ".b[?(@ in x)]"},
        {"name": "C", "type": "string", "jsonPath": ".c"},
    ]
    assert [c.name for c in custom_columns(raw)] == ["Name", "A"]
