"""The shipped Stages use only what KWOK itself has: they are to run on a real KWOK unchanged.

The lists are those of KWOK's ``next`` form (v1alpha1, commit 172defa5) and are kept apart from
what the engine here supports, so that an addition to the engine does not slip into the files.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from gpusched.devcluster.stages.templates import execution

FOLDER: Final = Path(__file__).parents[3] / "kwok-scenarios"
STAGES: Final = [
    (file.name, document)
    for file in sorted((FOLDER / "stages").glob("*.yaml"))
    for document in yaml.safe_load_all(file.read_text())
]
FIELDS: Final[dict[str, frozenset[str]]] = {
    "spec": frozenset(
        ("resourceRef", "selector", "weight", "weightFrom", "delay", "next", "immediateNextStage")
    ),
    "spec.resourceRef": frozenset(("apiGroup", "kind")),
    "spec.selector": frozenset(("matchLabels", "matchAnnotations", "matchExpressions")),
    "spec.selector.matchExpressions": frozenset(("key", "operator", "values")),
    "spec.weightFrom": frozenset(("expressionFrom",)),
    "spec.delay": frozenset(
        ("durationMilliseconds", "durationFrom", "jitterDurationMilliseconds", "jitterDurationFrom")
    ),
    "spec.delay.durationFrom": frozenset(("expressionFrom",)),
    "spec.delay.jitterDurationFrom": frozenset(("expressionFrom",)),
    "spec.next": frozenset(
        ("event", "finalizers", "delete", "statusTemplate", "statusSubresource", "patches")
    ),
    "spec.next.event": frozenset(("type", "reason", "message")),
    "spec.next.patches": frozenset(("subresource", "root", "template", "type")),
}
KWOK: Final = frozenset(("Quote", "Now", "StartTime", "YAML", "Version", "NodeConditions"))
OF_KIND: Final = {
    "Pod": frozenset(("NodeIP", "PodIP", "NodeIPWith", "NodeIPsWith", "PodIPWith", "PodIPsWith")),
    "Node": frozenset(("NodeIP", "NodePort")),
}
"""Without NodeName: on KWOK it is its own option of that name, empty as a rule, not the node's."""
SPRIG: Final = frozenset(("dict", "default", "max", "min", "sub", "add", "trunc"))
GO: Final = frozenset(
    ("and", "or", "not", "eq", "ne", "lt", "le", "gt", "ge", "index", "len", "printf", "print")
)
JQ: Final = frozenset(
    (
        "select", "scan", "test", "tonumber", "tostring", "fromdateiso8601", "todateiso8601",
        "explode", "reduce", "as", "def", "if", "then", "elif", "else", "end", "and", "or", "not",
        "add", "any", "max", "min", "join", "split", "endswith", "length", "log", "empty", "null",
    )
)  # fmt: skip
"""Words of jq that gojq, KWOK's jq, knows by the same meaning."""


def unknown_fields(value: Any, path: str = "spec") -> list[str]:
    if isinstance(value, list):
        return [found for item in value for found in unknown_fields(item, path)]
    if not isinstance(value, dict) or path not in FIELDS:
        return []
    found = [f"{path}.{key}" for key in value if key not in FIELDS[path]]
    return found + [f for key, item in value.items() for f in unknown_fields(item, f"{path}.{key}")]


def unknown_words(program: str) -> set[str]:
    """Words of a jq program that are neither of jq nor defined in it."""
    bare = re.sub(r'"(?:[^"\\]|\\.)*"', '""', program)
    own = set(re.findall(r"def\s+(\w+)", bare)) | {
        word
        for args in re.findall(r"def\s+\w+\(([^)]*)\)", bare)
        for word in re.findall(r"\w+", args)
    }
    words = set(re.findall(r"(?<![.\w$])[a-z_]\w*", bare))
    return words - JQ - own


def expressions(document: dict[str, Any]) -> list[str]:
    spec = document["spec"]
    found = [one["key"] for one in spec["selector"].get("matchExpressions", ())]
    delay = spec.get("delay", {})
    sources = [delay.get("durationFrom"), delay.get("jitterDurationFrom"), spec.get("weightFrom")]
    return found + [source["expressionFrom"] for source in sources if source]


def test_the_lists_can_refuse() -> None:
    """What real KWOK does not have is found."""
    assert unknown_fields({"steps": [], "next": {"apply": {}}}) == ["spec.steps", "spec.next.apply"]
    assert unknown_words('def f: 1; f | now | .now | $now | "now"') == {"now"}


@pytest.mark.parametrize(("file", "document"), STAGES, ids=lambda v: v if isinstance(v, str) else v["metadata"]["name"])  # fmt: skip
def test_stage_is_plain_kwok(file: str, document: dict[str, Any]) -> None:
    """Fields, template functions and words of jq are KWOK's own."""
    assert unknown_fields(document["spec"]) == [], file
    kind = document["spec"]["resourceRef"]["kind"]
    after = document["spec"]["next"]
    if "statusTemplate" in after:
        assert not after.get("delete"), "KWOK deletes instead of patching"
        called = execution.parse_cached(after["statusTemplate"]).functions
        assert called - KWOK - OF_KIND[kind] - SPRIG - GO == set()
    for program in expressions(document):
        assert unknown_words(program) == set()


def test_every_annotation_is_in_the_table() -> None:
    """README.md tells of each annotation that a Stage reads, and of no other."""
    texts = [file.read_text() for file in sorted((FOLDER / "stages").glob("*.yaml"))]
    read = set(re.findall(r'"(gpusched\.io/[a-z-]+)"', "".join(texts)))
    table = set(
        re.findall(r"^\| `(gpusched\.io/[a-z-]+)", (FOLDER / "README.md").read_text(), re.MULTILINE)
    )
    assert table == read
