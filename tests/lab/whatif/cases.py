"""A small cluster of Jobs that run and wait, for questions about it."""

from __future__ import annotations

import json

from tests.advice.clusters import GPU, node, queue, write_file

SPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}


def job(name, pods, gpus, *, queue="research", on=(), expects=""):
    """A Job and its pods, which run on the nodes of ``on``; without any it waits and has none yet."""
    uid = f"uid-{name}"
    container = {"name": "c", "image": "i", "resources": {"limits": {GPU: str(gpus)}}}
    spec = {"schedulerName": "gpusched", "restartPolicy": "Never", "containers": [container]}
    meta = {
        "name": name, "namespace": "team", "uid": uid, "labels": {"gpusched.io/queue": queue},
        "annotations": {"gpusched.io/expected-duration": expects} if expects else {},
    }  # fmt: skip
    made = {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": meta,
        "spec": {
            "parallelism": pods, "completions": pods, "completionMode": "Indexed",
            "template": {"metadata": {"labels": {"gpusched.io/queue": queue}}, "spec": spec},
        },
    }  # fmt: skip
    return [
        made,
        *(_pod(made, number, node_name) for number, node_name in enumerate(on)),
    ]


def _pod(made, number, node_name):
    name, spec = made["metadata"]["name"], made["spec"]["template"]["spec"]
    owner = {
        "apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": made["metadata"]["uid"],
        "controller": True,
    }  # fmt: skip
    labels = {
        **made["metadata"]["labels"], "batch.kubernetes.io/job-name": name,
        "batch.kubernetes.io/job-completion-index": str(number),
    }  # fmt: skip
    meta = {
        "name": f"{name}-{number}",
        "namespace": "team",
        "labels": labels,
        "ownerReferences": [owner],
    }
    status = {"phase": "Running", "startTime": "2027-01-15T08:00:00Z"}
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {**spec, "nodeName": node_name},
        "status": status,
    }  # fmt: skip


def example_objects():
    """The cluster of docs/what-if.md: two racks of two nodes, and three Jobs that wait."""
    return [
        SPACE,
        queue("research", deserved={GPU: "16"}),
        queue("prod", deserved={GPU: "16"}),
        *(node(f"gpu-{each}", rack=f"r{6 + each // 2}") for each in range(4)),
        *job("llm", 1, 8, on=["gpu-0"], expects="6h"),
        *job("eval", 1, 4, on=["gpu-2"], expects="3h"),
        *job("serve", 2, 4, queue="prod", on=["gpu-3", "gpu-3"], expects="12h"),
        *job("sweep", 4, 4, expects="4h"),
        *job("rank", 2, 8, queue="prod", expects="5h"),
        *job("train", 1, 8, expects="5h"),
    ]


def write_example(path):
    """The same as a file of ``gpusched snapshot``."""
    return write_file(path, example_objects())


def answer_of(capsys):
    """What was printed as JSON."""
    return json.loads(capsys.readouterr().out)
