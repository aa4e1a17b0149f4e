"""Every mistake in a scenario's file is told with its line, in one sentence that helps."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpusched.base.errors import ConfigError
from gpusched.lab.scenario.file.read import read_path
from tests.lab.scenario.texts import HEAD_LINES, whole

NODES = "nodes: [{count: 2, gpus: 8}]\n"
TRAIN = NODES + "timeline:\n- submit: {name: train, runFor: 1m}\n"
BAD: dict[str, tuple[str, int, str]] = {
    "unknown field": ("teach: x", 1, 'unknown key "teach" in spec'),
    "did you mean": ("nodes: [{gpu: 8}]", 1, 'did you mean "gpus"?'),
    "number too small": ("nodes: [{count: 0}]", 1, "count must be a whole number from 1 to 100000"),
    "number too large": (
        "timeline:\n- {count: 100001, submit: {name: a}}",
        2,
        "count must be a whole number from 1 to 100000, not 100001",
    ),
    "negative duration": (
        "timeline:\n- {at: -5s, cordon: a}", 2, "at must be a duration from 0s to 8784h: '-5s' is negative",
    ),
    "no duration": ("limit: soon", 1, "limit must be a duration"),
    "a list where a mapping is needed": ("timeline: [[]]", 1, "an entry of the timeline must be"),
    "bool for a number": ("seed: true", 1, "seed must be a whole number"),
    "yaml 1.1 words": ("config: yes", 1, '"yes": write true or false, or quote it'),
    "alias": ("nodes: &a []\nqueues: *a", 2, "alias *a: write the value out again"),
    "duplicate key": ("seed: 1\nseed: 2", 2, 'duplicate key "seed"'),
    "too long a text": (f"timeline:\n- {{cordon: a, say: {'x' * 1025}}}", 2, "one of 1025 characters"),
    "gangs of no release": (
        "seed: 1\ncluster: {kubernetesGangs: 1.39}", 2, "gangs are served as in Kubernetes 1.36 or 1.37, not 1.39",
    ),
    "a gate without what it needs": (
        "cluster: {featureGates: {WorkloadWithJob: true}}", 1, "WorkloadWithJob needs GenericWorkload to be on",
    ),
    "no act": ("timeline:\n- at: 5s", 2, "an entry of the timeline needs one of submit, apply"),
    "two acts": (NODES + "timeline:\n- {cordon: node-0, drain: node-0}", 3, "has cordon and drain"),
    "misspelt act": ("timeline:\n- {submt: {name: a}}", 2, 'did you mean "submit"?'),
    "endless": (
        "timeline:\n- {every: 5s, submit: {name: a}}", 2, "every needs count or until: this timeline would never end",
    ),
    "until without every": ("timeline:\n- {until: 5s, submit: {name: a}}", 2, "until needs every"),
    "until before at": (
        "timeline:\n- {at: 9s, every: 1s, until: 5s, submit: {name: a}}", 2, "until is before at",
    ),
    "a day of 23 hours": (
        f"timeline:\n- {{every: 5s, count: 3, day: {[1] * 23}, submit: {{name: a}}}}", 2, "list of 24 items, not of 23",
    ),
    "a day without work": (
        f"timeline:\n- {{every: 5s, count: 3, day: {[0] * 24}, submit: {{name: a}}}}", 2, "day has no hour in which",
    ),
    "beyond the limit": (
        "limit: 1m\ntimeline:\n- {at: 2m, submit: {name: a}}", 3, "is at 2m, beyond the limit of 1m",
    ),
    "repeats beyond the limit": (
        "limit: 1m\ntimeline:\n- {every: 20s, count: 5, submit: {name: a}}", 3, "goes on to 1m20s, beyond the limit of 1m",
    ),
    "after the end": (
        "ends: 1m\ntimeline:\n- {at: 2m, submit: {name: a}}", 3, "is at 2m, after the scenario's end at 1m",
    ),
    "too many moments of one entry": (
        "limit: 100h\ntimeline:\n- {every: 1s, until: 50h, submit: {name: a}}", 3, "happens more than 100000 times",
    ),
    "judged after the end": (
        TRAIN + "ends: 1m\nexpect:\n- {job: train, is: gone, by: 2m}", 6, "is judged at 2m, after the scenario's end",
    ),
    "judged beyond the limit": (
        TRAIN + "expect:\n- {job: train, is: gone, during: [1m, 2h]}", 5, "judged at 2h, beyond the limit of 1h",
    ),
    "a span backwards": (
        TRAIN + "expect:\n- {job: train, is: gone, during: [2m, 1m]}", 5, "during ends before it begins",
    ),
    "two spans": (TRAIN + "expect:\n- {job: train, is: gone, at: 1m, by: 2m}", 5, "has at and by"),
    "a job that never appears": (
        TRAIN + "expect:\n- {job: tran, is: complete}", 5, 'no job "tran" is ever there: there are train; did you mean "train"?',
    ),
    "a pattern that nothing matches": (TRAIN + "expect:\n- {job: x-*, is: complete}", 5, 'no job "x-*" is ever'),
    "an object that never appears": (
        TRAIN + "expect:\n- {object: {kind: Queue, name: a}, path: .status.running, equals: 1}", 5, 'no Queue "a" is ever there',
    ),
    "no such kind": (TRAIN + "expect:\n- {count: {kind: Pods}, equals: 1}", 5, 'there is no kind "Pods"; did you mean "Pod"?'),
    "no form": (TRAIN + "expect:\n- {jobs: train}", 5, 'one of job, object, count, stat, event; did you mean "job"?'),
    "nothing expected": (TRAIN + "expect:\n- {job: train}", 5, "an expectation on a job needs one of is, pods"),
    "bad state": (TRAIN + "expect:\n- {job: train, is: done}", 5, "is must be one of waiting, admitted"),
    "bad expression": (TRAIN + "expect:\n- {job: train, says: '('}", 5, "says must be a regular expression"),
    "bad path": (
        TRAIN + "expect:\n- {object: {kind: Job, name: train}, path: '.a[', equals: 1}", 5, "is not understood from",
    ),
    "a path without comparison": (
        TRAIN + "expect:\n- {object: {kind: Job, name: train}, path: .a}", 5, "path needs one of equals, not",
    ),
    "two comparisons": (
        TRAIN + "expect:\n- {count: {kind: Pod}, equals: 1, atLeast: 2}", 5, "has equals and atLeast",
    ),
    "no statistic": (TRAIN + "expect:\n- {stat: p95(wate), atMost: 1}", 5, "jobs have no value 'wate'"),
    "statistics of nobody": (
        TRAIN + "expect:\n- {stat: mean(wait), of: {queue: b}, atMost: 1}", 5, 'no queue "b" is ever there',
    ),
    "level": (TRAIN + "expect:\n- {job: train, within: rak}", 5, 'no level of topology "rak"'),
    "queue": ("timeline:\n- submit: {name: a, queue: b}", 2, 'there is no queue "b"'),
    "parent": ("queues: [{name: a, parent: b}]", 1, 'there is no queue "b"'),
    "priority": ("timeline:\n- submit: {name: a, priority: high}", 2, 'there is no PriorityClass "high"'),
    "topology of a workload": (
        "timeline:\n- submit: {name: a, topology: {required: pod}}", 2, 'no level of topology "pod"',
    ),
    "field of a queue": ("queues:\n- {name: a, wight: 3}", 2, 'unknown key "wight" in queue a'),
    "word of a queue": ("queues:\n- {name: a, ordering: fifo}", 2, "ordering must be one of Priority, Fifo"),
    "duration of a queue": ("queues:\n- {name: a, maxWait: long}", 2, "maxWait must be a duration"),
    "queue without a name": ("queues: [{weight: 3}]", 1, "an entry of queues needs the key name"),
    "queues of one name": ("queues: [{name: a}, {name: a}]", 1, "Queue a is there twice"),
    "nodes of one name": ("nodes: [{}, {}]", 1, "Node node-0 is there twice"),
    "workloads of one name": (
        "timeline:\n- submit: {name: a}\n- {at: 1m, submit: {name: a}}", 3, "makes Job a a second time: the first is made by",
    ),
    "repeats of one name": (
        'timeline:\n- {count: 3, submit: {name: "a-{{ mod Index 2 }}"}}', 2, "makes Job a-0 a second time",
    ),
    "template": ('timeline:\n- submit: {name: "a-{{ Index"}', 2, "an action is not closed with }}"),
    "function of a template": ('timeline:\n- submit: {name: "a-{{ Now }}"}', 2, "function 'Now' is not known"),
    "arguments of a template": (
        'timeline:\n- submit: {name: "a-{{ index }}"}', 2, "index: it takes other arguments",
    ),
    "node of an act": (NODES + "timeline:\n- cordon: node-2", 3, 'no Node "node-2" is ever there: there are node-0, node-1'),
    "labels of an act": (
        NODES + "timeline:\n- drain: {labels: {gpusched.io/rack: r}}", 3, "no node has the labels gpusched.io/rack=r",
    ),
    "target of an act": (TRAIN + "- scale: {kind: Job, name: tran, replicas: 3}", 4, 'no Job "tran" is ever there'),
    "failure of nobody": ("timeline:\n- fail: {how: lost}", 2, "a failure needs one of node, labels"),
    "failure of GPUs": (NODES + "timeline:\n- fail: {node: node-0, how: gpus}", 3, "need each other"),
    "restart": ("timeline:\n- restart: {what: leder}", 2, 'not "leder"; did you mean "leader"?'),
    "writes of another": ("timeline:\n- restart: {what: apiserver, afterWrites: 3}", 2, "afterWrites is of leader"),
    "fault": (
        "timeline:\n- fault:\n    match: {verbs: [git]}\n    fault: {type: drop}", 3, "'git' is none of get, list",
    ),
    "fault without a type": ("timeline:\n- fault:\n    fault: {typ: drop}", 3, "type must be one of delay"),
    "missing file": ("timeline:\n- apply: more.yaml", 2, '"more.yaml" is missing'),
    "missing stages": ("stages: [more.yaml]", 1, '"more.yaml" is missing'),
    "missing configuration": ("config: more.yaml", 1, '"more.yaml" is missing'),
    "configuration": ("config: {cycle: {debouce: 1s}}", 1, 'unknown key "debouce" in cycle'),
    "plugin": ("config: {plugins: {nodeordr: {}}}", 1, 'plugin "nodeordr" is in no tier'),
    "argument of a plugin": ("config: {plugins: {nodeorder: {stratgy: spread}}}", 1, "stratgy"),
    "manifest without kind": ("objects: [{apiVersion: v1, metadata: {name: a}}]", 1, "a manifest needs the text kind"),
    "manifest without name": ("objects: [{apiVersion: v1, kind: Secret}]", 1, "Secret needs metadata.name"),
    "label that is no text": (
        "objects: [{apiVersion: v1, kind: Secret, metadata: {name: a, labels: {n: 3}}}]", 1, "labels[n] must be a text, not 3",
    ),
    "field of a PodGroup": (
        "objects:\n- apiVersion: scheduling.gpusched.io/v1alpha1\n  kind: PodGroup\n  metadata: {name: a}\n  spec: {minMembers: 3}",
        5, 'did you mean "minMember"?',
    ),
    "pool": (
        "objects: [{apiVersion: devcluster.gpusched.io/v1alpha1, kind: NodePool, metadata: {name: a}, spec: {replicas: 1000000}}]",
        1, "replicas must be from 0 to 100000, not 1000000",
    ),
    "draw backwards": ("timeline:\n- submit: {name: a, pods: {from: 3, to: 1}}", 2, "pods goes from 3 down to 1"),
    "draw of nothing": ("timeline:\n- submit: {name: a, pods: {form: 3}}", 2, "pods must be a value, or a mapping with one of"),
    "weights": (
        "timeline:\n- submit: {name: a, pods: {choice: [1, 2], weights: [1]}}", 2, "pods has 2 choices and 1 weights",
    ),
    "gang larger than itself": ("timeline:\n- submit: {name: a, pods: 2, minMember: 3}", 2, "minMember is 3, of 2 pods"),
    "drawn gang larger than itself": (
        "timeline:\n- {count: 50, submit: {name: a, pods: {from: 1, to: 4}, minMember: 2}}", 2, "minMember is 2, of 1 pods",
    ),
    "field of another kind": ("timeline:\n- submit: {name: a, kind: Pod, deadline: 5m}", 2, "deadline is of kind Job, not Pod"),
    "shares and GPUs": ("timeline:\n- submit: {name: a, gpus: 1, fraction: '.5'}", 2, "has gpus and fraction"),
    "walltime of an endless job": (
        "timeline:\n- submit: {name: a, expectedDuration: true}", 2, "expectedDuration: true needs runFor",
    ),
    "nobody starts it": ("timeline:\n- submit: {name: a, suspend: true}", 2, "suspend: true needs a queue"),
    "roles of one name": (
        "timeline:\n- submit: {name: a, kind: PodGroup, roles: [{name: b}, {name: b}]}", 2, "role b is there twice",
    ),
    "columns": (
        "tables: [{title: a, columns: [x, y], rows: [{name: b, cells: ['1']}]}]", 1, "1 cells stand in 2 columns",
    ),
    "queues in a ring": (
        "queues: [{name: a, parent: b}, {name: c, parent: b}, {name: b, parent: a}]", 1,
        "queues are their own parents: a < b < a; leave parent out",
    ),
    "its own parent": ("queues: [{name: a, parent: a}]", 1, "queues are their own parents: a < a"),
    "a number of many digits": (f"seed: {'9' * 25}", 1, "has more digits than any number here"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_mistake_is_told_with_its_line(case: str, tmp_path: Path) -> None:
    """Exactly where it stands, in words that name what is known instead."""
    spec, line, sentence = BAD[case]
    file = tmp_path / "bad.yaml"
    file.write_text(whole(spec))
    with pytest.raises(ConfigError) as refused:
        read_path(file)
    problems = refused.value.problems
    at = f"{file}:{HEAD_LINES + line}: "
    assert [each for each in problems if each.startswith(at) and sentence in each], problems


def test_everything_is_told_at_once(tmp_path: Path) -> None:
    """Mistakes of several fields, and of several files of one folder, come together."""
    (tmp_path / "scenario.yaml").write_text(whole("nodes: [{gpu: 8}]\nseed: x"))
    (tmp_path / "objects.yaml").write_text("kind: Secret\n---\n- a list\n")
    with pytest.raises(ConfigError) as refused:
        read_path(tmp_path)
    text = "\n".join(refused.value.problems)
    assert len(refused.value.problems) == 5
    assert "scenario.yaml:6" in text
    assert "scenario.yaml:7" in text
    assert "objects.yaml:1" in text
    assert "objects.yaml:3: a manifest must be a mapping, not a list" in text


def test_a_wrong_comparison_is_not_called_missing(tmp_path: Path) -> None:
    """One mistake, one sentence."""
    wrong = "expect:\n- {object: {kind: Node, name: node-0}, path: .spec, equals: {a: 1}}\n"
    (tmp_path / "scenario.yaml").write_text(whole(TRAIN + wrong), encoding="utf-8")
    with pytest.raises(ConfigError) as refused:
        read_path(tmp_path)
    (problem,) = refused.value.problems
    assert "equals must be a number, a text, true or false, not a mapping" in problem


def test_queues_in_a_ring_that_is_meant(tmp_path: Path) -> None:
    """The annotation that lets what a queue names be missing lets it be a descendant, too."""
    queue = "- {apiVersion: scheduling.gpusched.io/v1alpha1, kind: Queue, metadata: "
    meant = 'annotations: {scenario.gpusched.io/unchecked: "true"}'
    ring = f"objects:\n{queue}{{name: a, {meant}}}, spec: {{parent: b}}}}\n"
    ring += f"{queue}{{name: b}}, spec: {{parent: a}}}}\n"
    (tmp_path / "scenario.yaml").write_text(whole(TRAIN + ring), encoding="utf-8")
    read_path(tmp_path)
