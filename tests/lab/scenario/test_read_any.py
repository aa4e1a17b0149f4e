"""Whatever a file holds, the reader gives scenarios or sentences, never a fault of its own."""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from gpusched.base.errors import ConfigError
from gpusched.lab.scenario.expansion.moments import unroll_timeline
from gpusched.lab.scenario.file.read import read_path
from tests.lab.scenario.test_scenario_schema import GOOD
from tests.lab.scenario.texts import whole

MORE = """
---
apiVersion: scheduling.gpusched.io/v1alpha1
kind: PodGroup
metadata: {name: g, labels: {a: b}, annotations: {gpusched.io/topology-required: rack}}
spec: {minMember: 1, topology: {required: rack}, subGroups: [{name: a, topology: {preferred: rack}}]}
---
apiVersion: scheduling.gpusched.io/v1alpha1
kind: Topology
metadata: {name: default}
spec: {levels: [{name: rack, nodeLabel: gpusched.io/rack}]}
---
apiVersion: devcluster.gpusched.io/v1alpha1
kind: NodePool
metadata: {name: p}
spec: {replicas: 2, template: {metadata: {name: "p-{{ Index }}"}, status: {capacity: {cpu: 8}}}}
---
apiVersion: v1
kind: List
items:
- apiVersion: apps/v1
  kind: Deployment
  metadata: {name: d}
  spec: {template: {metadata: {labels: {gpusched.io/queue: a}}, spec: {priorityClassName: high}}}
"""
VALUES: list[Any] = [
    None, True, 0, -1, 10**18, 1.5, "", "x", "{{", "{{ Index }}", "{{ .a.b }}", "{{ div 1 0 }}", "5s", "-5s",
    "*", [], {}, [1], {"a": 1}, [[]], [{}], "a" * 2000, {"from": 1}, {"from": 3, "to": 1}, {"choice": []},
    {"choice": [1], "weights": [0]}, {"median": 0, "p95": 3}, "{{ index }}",
]  # fmt: skip
ROUNDS = 40


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of everything inside a value."""
    yield path
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*path, key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from places(item, (*path, number))


def test_any_value_anywhere_is_read_or_refused(tmp_path: Path) -> None:
    """One or two values of a good scenario are replaced or left out; its moments can be asked for."""
    text = re.sub(r"\bon:", '"on":', whole(GOOD) + MORE)
    documents = list(yaml.safe_load_all(text))
    somewhere = [path for path in places(documents) if len(path) > 1]
    chance = random.Random(6)
    file = tmp_path / "any.yaml"
    refused: list[str] = []
    for _ in range(ROUNDS):
        changed = copy.deepcopy(documents)
        path = chance.choice(somewhere)
        inner: Any = changed
        for step in path[:-1]:
            inner = inner[step]
        if chance.random() < 0.85:
            inner[path[-1]] = copy.deepcopy(chance.choice(VALUES))
        else:
            del inner[path[-1]]
        file.write_text(yaml.safe_dump_all(changed, sort_keys=False))
        try:
            (found,) = read_path(file)
        except ConfigError as error:
            refused.append(error.problems[0])
        else:
            for moment in unroll_timeline(found):
                assert moment.sentence
                assert moment.act is not None
    assert ROUNDS // 2 < len(refused) < ROUNDS
    assert all(each.startswith(str(tmp_path)) for each in refused)
