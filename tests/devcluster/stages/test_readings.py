"""Answers kept by what was read are those of the program itself, and it runs seldom."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from gpusched.devcluster.stages.expressions import compile_jq
from gpusched.devcluster.stages.read_cache import ReadCache, is_pure, jq_value, without_views

Obj = dict[str, Any]

PROGRAMS = [
    ".status.phase",
    ".metadata",
    ".",
    'if .metadata == null then "none" else .metadata.labels end',
    '.status.conditions[]? | select(.type == "Ready") | .status',
    '[.status.conditions[]?.type] | join(",")',
    ".metadata.annotations[.status.phase]",
    ".metadata.labels | length",
    '.metadata | has("labels")',
    ".metadata.labels | to_entries[] | .value",
    ".status.conditions | length, .[0]?, (.[-1:] | .[]?)",
    ".status.conditions[]? | keys",
    "[.. | strings] | sort",
    ".spec.numbers",
    ".spec.numbers[1]? + 1",
    ".metadata.labels == .metadata.annotations",
    ".status as {phase: $p} | $p",
    "[.status.conditions[]?] | sort_by(.type) | .[0].type",
    ".metadata | tostring",
    '.metadata.labels.a // "b" | ascii_upcase',
    ".status.conditions | map(.status) | unique",
    '.spec.numbers | if type == "array" then add else . end',
    ".metadata | del(.labels)",
    ".status.conditions[0].status |= 1 | .status",
]


def objects() -> list[Obj]:
    metas: list[Any] = [
        {},
        {"labels": {"a": "x"}, "annotations": {"Running": "yes"}},
        {"labels": {"a": "x", "b": None}, "annotations": {"a": "x"}},
        {"labels": None},
    ]
    statuses: list[Any] = [
        None,
        {"phase": "Running"},
        {"phase": 1},
        {"phase": True, "conditions": []},
        {"conditions": [{"type": "Ready", "status": "True", "at": 1}, {"type": "A"}]},
        {"conditions": [{"type": "Ready", "status": "False", "at": 2}, "text", [1], None, 3]},
        {"conditions": {"type": "Ready"}},
    ]
    specs: list[Any] = [{}, {"numbers": [1, 2]}, {"numbers": [True, 1.5]}, {"numbers": 7}]
    return [
        {"metadata": m, "status": s, "spec": p}
        for m, s, p in itertools.product(metas, statuses, specs)
    ]


def outputs(text: str, obj: Obj) -> list[Any]:
    try:
        found: list[Any] = compile_jq(text).all(obj)  # type: ignore[no-untyped-call]
    except Exception as fault:
        if isinstance(fault, KeyError):
            raise
        return [type(fault).__name__]
    return found


@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize("text", PROGRAMS)
def test_the_kept_answer_is_what_the_program_says(text: str, *, typed: bool) -> None:
    """Objects that differ in any way a program may see get its own answer, each time they come."""
    kept = ReadCache(lambda obj: without_views(outputs(text, obj)), typed=typed)
    for obj in [*objects(), *reversed(objects())]:
        found = kept.answer_for(obj)
        want = outputs(text, jq_value(obj, typed=typed))
        assert found == want
        assert [type(value) for value in found] == [type(value) for value in want]


def test_a_program_runs_once_for_all_that_read_alike() -> None:
    """What a program does not read makes no difference to it."""
    runs = []

    def run(obj: Obj) -> list[Any]:
        runs.append(1)
        return outputs('.status.conditions[] | select(.type == "Ready") | .status', obj)

    kept = ReadCache(run, typed=False)
    for beat in range(100):
        condition = {"type": "Ready", "status": "True", "lastHeartbeatTime": str(beat)}
        obj: Obj = {"metadata": {"name": str(beat)}, "status": {"conditions": [condition]}}
        assert kept.answer_for(obj) == ["True"]

    assert len(runs) == 1


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (".status.phase", True),
        ("now - .a", False),
        ("$ENV.HOME", False),
        ("input", False),
        (".metadata.annotations.known", True),
    ],
)
def test_programs_that_ask_for_more_than_the_object_are_not_kept(text: str, *, want: bool) -> None:
    """The time, the environment and other inputs change without the object."""
    assert is_pure(text) == want
