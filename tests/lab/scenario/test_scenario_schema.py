"""The JSON Schema for editors: up to date, and of one mind with the reader about structure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpusched.base import installed_files
from gpusched.base.errors import ConfigError
from gpusched.lab.scenario import schema
from gpusched.lab.scenario.file.read import read_path
from tests.lab.scenario.test_read_files import BLOCK, DOCS
from tests.lab.scenario.texts import HEAD, whole

Schema = dict[str, Any]
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int}
SCHEMA = schema.scenario_schema()


def faults(value: Any, rule: Schema, at: str = "$") -> Iterator[str]:
    """What a value breaks of the part of JSON Schema that is in use here."""
    known = {
        "$ref", "type", "enum", "const", "properties", "required", "additionalProperties", "items",
        "minItems", "maxItems", "minimum", "maximum", "minLength", "maxLength", "pattern", "anyOf",
        "oneOf", "allOf", "not", "if", "then", "else", "propertyNames", "description", "title",
        "format", "$schema", "$defs", "maxProperties",
    }  # fmt: skip
    assert set(rule) <= known, set(rule) - known
    if "$ref" in rule:
        yield from faults(value, SCHEMA["$defs"][rule["$ref"].rpartition("/")[2]], at)
    types = rule.get("type", [])
    if types and not any(
        _is(value, each) for each in ([types] if isinstance(types, str) else types)
    ):
        yield f"{at}: is no {types}"
        return
    yield from _simple(value, rule, at)
    if isinstance(value, dict):
        yield from _mapping(value, rule, at)
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from faults(item, rule.get("items", {}), f"{at}[{number}]")
    yield from _combined(value, rule, at)


def _is(value: Any, name: str) -> bool:
    if name == "number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, TYPES[name]) and (name == "boolean" or not isinstance(value, bool))


def _simple(value: Any, rule: Schema, at: str) -> Iterator[str]:
    if "enum" in rule and value not in rule["enum"]:
        yield f"{at}: is none of {rule['enum']}"
    if "const" in rule and (value != rule["const"] or isinstance(value, bool)):
        yield f"{at}: is not {rule['const']}"
    if isinstance(value, str):
        if not rule.get("minLength", 0) <= len(value) <= rule.get("maxLength", 10**9):
            yield f"{at}: has a wrong length"
        if "pattern" in rule and not re.search(rule["pattern"], value):
            yield f"{at}: does not match {rule['pattern']}"
    if isinstance(value, list) and not (
        rule.get("minItems", 0) <= len(value) <= rule.get("maxItems", 10**9)
    ):
        yield f"{at}: has {len(value)} items"
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number and not rule.get("minimum", -1e99) <= value <= rule.get("maximum", 1e99):
        yield f"{at}: is out of range"


def _mapping(value: dict[str, Any], rule: Schema, at: str) -> Iterator[str]:
    fields, others = rule.get("properties", {}), rule.get("additionalProperties", True)
    for key, inner in value.items():
        if "propertyNames" in rule:
            yield from faults(key, rule["propertyNames"], f"{at}.{key}")
        if key in fields:
            yield from faults(inner, fields[key], f"{at}.{key}")
        elif others is False:
            yield f"{at}: unknown {key}"
        elif isinstance(others, dict):
            yield from faults(inner, others, f"{at}.{key}")
    yield from (f"{at}: lacks {key}" for key in rule.get("required", ()) if key not in value)


def _combined(value: Any, rule: Schema, at: str) -> Iterator[str]:
    def fits(part: Schema) -> bool:
        return not any(faults(value, part, at))

    if "anyOf" in rule and not any(map(fits, rule["anyOf"])):
        yield f"{at}: fits none of several"
    if "oneOf" in rule and sum(map(fits, rule["oneOf"])) != 1:
        yield f"{at}: fits not exactly one of several"
    for part in rule.get("allOf", ()):
        yield from faults(value, part, at)
    if "not" in rule and fits(rule["not"]):
        yield f"{at}: must not be so"
    if "if" in rule:
        yield from faults(value, rule["then" if fits(rule["if"]) else "else"], at)


def told(text: str) -> list[str]:
    """Faults of every document, read as an editor reads YAML: ``on`` is a key like any other."""
    quoted = re.sub(r"\bon:", '"on":', text)
    return [fault for each in yaml.safe_load_all(quoted) for fault in faults(each, SCHEMA)]


def test_the_file_is_what_the_program_prints() -> None:
    """``python -m gpusched.lab.scenario.schema > kwok-scenarios/scenario.schema.json`` was run."""
    assert (DOCS.parent / schema.FILE).read_text() == schema.schema_text()


def test_examples_are_accepted() -> None:
    """Those of the documentation, and every scenario that is shipped."""
    blocks = BLOCK.findall((DOCS / "scenarios.md").read_text())
    texts = [b if b.startswith("apiVersion") else HEAD + _indented(b) for b in blocks]
    shipped = [
        path.read_text()
        for path in sorted(installed_files.path("kwok-scenarios").rglob("*.yaml"))
        if "kind: Scenario" in path.read_text()
    ]
    for text in (*texts, *shipped):
        assert told(text) == []


def _indented(text: str) -> str:
    return "".join(f"  {line}\n" for line in text.splitlines())


MISTAKES = {
    "unknown field": "teach: x",
    "unknown field of nodes": "nodes: [{gpu: 8}]",
    "number too small": "nodes: [{count: 0}]",
    "number too large": "timeline: [{count: 100001, cordon: a}]",
    "wrong type": "seed: x",
    "no duration": "limit: soon",
    "no act": "timeline: [{at: 5s}]",
    "two acts": "timeline: [{cordon: a, drain: b}]",
    "unknown act": "timeline: [{submt: {name: a}}]",
    "a day of 23 hours": f"timeline: [{{every: 5s, count: 3, day: {[1] * 23}, cordon: a}}]",
    "a workload without a name": "timeline: [{submit: {pods: 3}}]",
    "pods and roles": "timeline: [{submit: {name: a, pods: 3, roles: [{name: b}]}}]",
    "half a draw": "timeline: [{submit: {name: a, pods: {from: 3}}}]",
    "draw of a flag": "timeline: [{submit: {name: a, preemptible: {choice: [true]}}}]",
    "bad name": "timeline: [{submit: {name: A_b}}]",
    "bad state": "expect: [{job: a, is: done}]",
    "no form": "expect: [{jobs: a, is: gone}]",
    "two spans": "expect: [{job: a, is: gone, at: 1m, by: 2m}]",
    "two comparisons": "expect: [{count: {kind: Pod}, equals: 1, atLeast: 2}]",
    "no comparison": "expect: [{count: {kind: Pod}}]",
    "field of another form": "expect: [{count: {kind: Pod}, equals: 1, is: gone}]",
    "a queue's field": "queues: [{name: a, wight: 3}]",
    "a queue's word": "queues: [{name: a, ordering: fifo}]",
    "a queue's amount": "queues: [{name: a, deserved: {cpu: many}}]",
    "restart": "timeline: [{restart: {what: leder}}]",
    "row": "tables: [{title: a, columns: [x], rows: [{name: b}]}]",
}


@pytest.mark.parametrize("case", MISTAKES)
def test_structural_mistakes_are_refused_by_both(case: str, tmp_path: Path) -> None:
    """What an editor can see, it underlines; the reader says it too."""
    text = whole(MISTAKES[case])
    assert told(text)
    file = tmp_path / "a.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError):
        read_path(file)


def test_what_the_reader_takes_the_schema_takes(tmp_path: Path) -> None:
    """Every field of every table once, in a scenario that is good."""
    text = whole(GOOD)
    assert told(text) == []
    file = tmp_path / "a.yaml"
    file.write_text(text)
    (found,) = read_path(file)
    assert len(found.timeline) == 15


GOOD = """
seed: 3
limit: 2h
ends: 1h30m
settle: 0
daemons: 2
config: {cycle: {maxPeriod: 5s}}
nodes:
- {name: gpu, count: 4, gpus: 8, cpu: 96, memory: 1Ti, pods: 50, product: H100, perRack: 2, perBlock: 4, perZone: 4,
   devices: [{kind: gpu, count: 8, model: H100, roots: 2, without: [gpu-1]}, {kind: channels}],
   labels: {a: b}, annotations: {a: b}, taints: [{key: a, effect: NoSchedule}], resources: {x.y/z: 4}}
queues: [{name: a, deserved: 8, capability: {cpu: 100}, guarantee: 1, weight: 2, ordering: Fifo}]
priorities: {high: 10}
objects: [{apiVersion: v1, kind: ConfigMap, metadata: {name: m}}]
timeline:
- {at: 1s, every: 10s, count: 3, until: 1m, arrivals: uniform, seed: 4, say: comes, submit: {name: a, runFor: 1m}}
- submit: {name: b, queue: {choice: [a]}, pods: {from: 1, to: 3}, gpus: {choice: [1, 2], weights: [1, 3]},
           cpu: {choice: [1, 500m]}, runFor: {median: 1m, p95: 1h}, expectedDuration: true, class: c, priority: high,
           topology: {required: rack, preferred: host}, startAfter: 0s, failOnAttempt: 1, failChance: 0.25}
- submit: {name: c, kind: PodGroup, minSubGroups: 1, topology: {preferred: rack, maxWait: 5m},
           roles: [{name: r, pods: 2, gpus: 1, cpu: 1, memory: 1Gi, minMember: 1, subGroup: s, topology: {required: host}}]}
- submit: {name: d, kind: Pod, gpuMemory: 10Gi, expectedDuration: 5m, resources: {x.y/z: 1}}
- {apply: {apiVersion: v1, kind: ConfigMap, metadata: {name: m}}}
- {at: 2s, delete: {kind: Job, name: "a-*", namespace: default, labels: {a: b}, grace: 0s}}
- {at: 3s, patch: {kind: Queue, name: a, merge: {spec: {weight: 3}}, status: false}}
- {at: 3s, scale: {kind: Job, name: b, apiVersion: batch/v1, replicas: 0}}
- {cordon: gpu-0}
- {uncordon: {labels: {gpusched.io/rack: rack-0}}}
- {drain: {name: "gpu-*"}}
- {fail: {node: gpu-1, how: gpus, gpus: 2, for: 10s}}
- {evict: {name: "b-*"}}
- {fault: {name: f, match: {verbs: [get]}, fault: {type: delay, seconds: 1}, when: {first: 3}, for: 30s}}
- {restart: {what: leader, down: 5s, afterWrites: 3}}
expect:
- {job: b, is: complete, pods: 0, reason: Scheduled, says: a, within: rack, on: "gpu-*", evicted: {atMost: 3}, at: 5m, say: so}
- {object: {kind: Job, name: b}, path: .status.succeeded, atLeast: 1, by: 5m}
- {object: {kind: Queue, name: a}, condition: Ready, reason: Ok, says: fine, exists: true}
- {count: {kind: Pod}, where: {.status.phase: Running}, equals: 0, during: [1m, 2m]}
- {stat: p95(wait), of: {queue: a, class: c, job: b, kind: Job}, atMost: 1m}
- {event: Scheduled, on: {kind: Pod, name: x}, says: b, atLeast: 1, unchecked: true}
tables:
- {title: t, columns: [x], rows: [{name: a, cells: [1]}, {name: b, stats: [makespan]}]}
"""
