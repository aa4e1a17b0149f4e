"""Which Stage is picked, with which delay."""

from __future__ import annotations

import random
from typing import Any

import pytest

from gpusched.devcluster.stages import load, matching
from gpusched.devcluster.stages.expressions import ExpressionInput
from gpusched.devcluster.stages.model import KwokStage, StageError

NOW = 1_800_000_000.0  # 2027-01-15T08:00:00Z


def stage(name: str = "s", **spec: Any) -> KwokStage:
    read = load.read_stage(
        {
            "metadata": {"name": name},
            "spec": {"resourceRef": {"kind": "Pod"}, "selector": {}, **spec},
        }
    )
    assert read is not None
    return read


def subject(**obj: Any) -> ExpressionInput:
    return ExpressionInput({"kind": "Pod", "metadata": {"name": "p"}, **obj}, now=NOW)


def annotated(**texts: str) -> ExpressionInput:
    return subject(metadata={"name": "p", "annotations": texts})


def bounds(delay: dict[str, Any], of: ExpressionInput) -> tuple[float, float] | None:
    return matching.delay_range(stage(delay=delay), of)


def selects(expression: dict[str, Any], of: ExpressionInput) -> bool:
    found = stage(selector={"matchExpressions": [expression]})
    return bool(matching.matching_stages([found], of))


@pytest.mark.parametrize(
    ("key", "values", "holds"),
    [
        (".status.flag", ["true"], True),
        (".status.count", ["3"], False),
        (".status.items | length", ["2"], True),
        (".status.text", ["other", "here"], True),
        (".status.text.deeper", ["here"], False),
    ],
)
def test_values_compare_as_on_kwok(key: str, values: list[str], *, holds: bool) -> None:
    """Booleans match as text, jq's own integers too, numbers of the object never."""
    of = subject(status={"flag": True, "count": 3, "items": [1, 2], "text": "here"})
    assert selects({"key": key, "operator": "In", "values": values}, of) is holds
    assert selects({"key": key, "operator": "NotIn", "values": values}, of) is not holds


def test_jq_errors_are_no_data() -> None:
    """A jq error makes Exists fail and DoesNotExist hold; null counts as absent."""
    of = subject(status={"text": "x", "none": None})
    for key in (".status.text.deeper", ".status.none"):
        assert not selects({"key": key, "operator": "Exists"}, of)
        assert selects({"key": key, "operator": "DoesNotExist"}, of)


def test_cel_errors_skip_the_object() -> None:
    """A CEL test holds when it is true, not when it fails."""
    of = subject(status={"phase": "Running"})
    assert selects({"cel": {"expression": "self.status.phase == 'Running'"}}, of)
    assert not selects({"cel": {"expression": "self.status.missing == 'x'"}}, of)


def test_labels_and_annotations() -> None:
    """MatchLabels and matchAnnotations compare whole values."""
    found = stage(selector={"matchAnnotations": {"a": "1"}, "matchLabels": {"b": "2"}})
    both = subject(metadata={"annotations": {"a": "1"}, "labels": {"b": "2"}})
    assert matching.matching_stages([found], both)
    assert not matching.matching_stages([found], annotated(a="1"))


@pytest.mark.parametrize(
    ("delay", "annotations", "want"),
    [
        ({"durationMilliseconds": 1500}, {}, (1.5, 1.5)),
        ({"durationMilliseconds": 1000, "jitterDurationMilliseconds": 5000}, {}, (1.0, 5.0)),
        ({"durationMilliseconds": 10000, "jitterDurationMilliseconds": 5000}, {}, (5.0, 5.0)),
        ({"durationFrom": ".metadata.annotations.d"}, {"d": "1m30s"}, (90.0, 90.0)),
        ({"durationFrom": ".metadata.annotations.d"}, {"d": "2027-01-15T08:00:07Z"}, (7.0, 7.0)),
        ({"durationFrom": ".metadata.annotations.d"}, {"d": "2027-01-15T07:59:00Z"}, (-60, -60)),
        (
            {"durationMilliseconds": 900, "durationFrom": ".metadata.annotations.d"},
            {"d": ""},
            None,
        ),
        (
            {"durationMilliseconds": 900, "durationFrom": ".metadata.annotations.d"},
            {"d": "soon"},
            (0.9, 0.9),
        ),
    ],
)
def test_delays(
    delay: dict[str, Any], annotations: dict[str, str], want: tuple[float, float] | None
) -> None:
    """Durations, absolute times, and jitter that is the upper end and may undercut the base."""
    if "durationFrom" in delay:
        delay = {**delay, "durationFrom": {"expressionFrom": delay["durationFrom"]}}
    assert bounds(delay, annotated(**annotations)) == want


def test_cel_jitter_is_ignored() -> None:
    """Jitter out of a CEL expression does not count, as on KWOK."""
    delay = {"durationMilliseconds": 100, "jitterDurationFrom": {"cel": {"expression": "'1ms'"}}}
    assert bounds(delay, subject()) == (0.1, 0.1)


@pytest.mark.parametrize(
    ("annotations", "want"),
    [
        ({}, (10.0, 30.0)),
        ({"d": "", "j": "20s"}, None),
        ({"d": "5s", "j": ""}, (5.0, 5.0)),
        ({"d": "5s", "j": "7s"}, (5.0, 7.0)),
        ({"d": "5s", "j": "3s"}, (3.0, 3.0)),
        ({"d": "junk", "j": "junk"}, (10.0, 30.0)),
        ({"j": "2027-01-15T08:00:40Z"}, (10.0, 40.0)),
        ({"j": "2027-01-15T07:59:50Z"}, (-10.0, -10.0)),
    ],
)
def test_expressions_overrule_delay_and_jitter(
    annotations: dict[str, str], want: tuple[float, float] | None
) -> None:
    """An empty text means no delay at all, or no jitter; what is no time leaves the number."""
    delay = {
        "durationMilliseconds": 10000,
        "durationFrom": {"expressionFrom": ".metadata.annotations.d"},
        "jitterDurationMilliseconds": 30000,
        "jitterDurationFrom": {"expressionFrom": ".metadata.annotations.j"},
    }
    assert bounds(delay, annotated(**annotations)) == want


def test_cel_error_in_one_stage_keeps_all_from_being_chosen() -> None:
    """As on KWOK, an object on which a CEL test fails is left alone, whatever else matches."""
    sound, odd = (
        stage("a"),
        stage("b", selector={"matchExpressions": [{"cel": {"expression": "self.x.y == 1"}}]}),
    )
    assert matching.matching_stages([sound], subject())
    assert matching.matching_stages([sound, odd], subject()) == []


@pytest.mark.parametrize(
    ("text", "want"),
    [("7", 7), ("0x10", 16), ("017", 15), ("0b11", 3), ("0", 0), ("", None), ("1.5", None),
     (" 7", None), ("9223372036854775808", None)],
)  # fmt: skip
def test_weights_are_read_in_any_base(text: str, want: int | None) -> None:
    """A text is an integer of 64 bits in any base, or unreadable."""
    found = stage(weight=4, weightFrom={"expressionFrom": ".metadata.annotations.w"})
    assert matching.stage_weight(found, annotated(w=text)) == want


def picked(weights: dict[str, Any], of: ExpressionInput) -> set[str]:
    stages = [
        stage(name, **(w if isinstance(w, dict) else {"weight": w})) for name, w in weights.items()
    ]
    rng = random.Random(7)
    chosen = [matching.pick_stage(stages, of, rng) for _ in range(60)]
    return {one.name for one in chosen if one is not None}


def test_weights() -> None:
    """Weights above 0 draw; none above 0 is uniform; unreadable ones stand back."""
    from_annotation = {"weightFrom": {"expressionFrom": ".metadata.annotations.w"}}
    assert picked({"a": 0, "b": 5}, subject()) == {"b"}
    assert picked({"a": 0, "b": 0}, subject()) == {"a", "b"}
    assert picked({"a": from_annotation, "b": 0}, annotated(w="junk")) == {"b"}
    assert picked({"a": from_annotation, "b": from_annotation}, annotated(w="")) == {"a", "b"}
    assert picked({"a": from_annotation, "b": 0}, annotated(w="0x10")) == {"a"}
    absent = {**from_annotation, "weight": 3}
    assert picked({"a": absent, "b": 0}, subject()) == {"a"}


def test_weight_numbers() -> None:
    """A number of the object is truncated, one that jq made falls back to ``weight``."""
    of = subject(spec={"w": 2.9, "l": [1, 2, 3]})
    from_object = stage(weight=1, weightFrom={"expressionFrom": ".spec.w"})
    from_jq = stage(weight=1, weightFrom={"expressionFrom": ".spec.l | length"})
    assert matching.stage_weight(from_object, of) == 2
    assert matching.stage_weight(from_jq, of) == 1


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"next": {"statusTemplate": "{{ frobnicate }}"}}, "calls frobnicate"),
        ({"next": {"statusTemplate": "{{ if }}"}}, "spec.next.statusTemplate"),
        ({"impersonation": {}}, "impersonation is not supported"),
        ({"next": {"statusPatchAs": {}}}, "statusPatchAs is not supported"),
        (
            {"selector": {"matchExpressions": [{"key": ".a", "operator": "Eq"}]}},
            "use In, NotIn, Exists or DoesNotExist",
        ),
        ({"selector": {"matchExpressions": [{"key": ".a", "operator": "In"}]}}, "values must"),
        ({"delay": {"durationFrom": {"expressionFrom": ".a |"}}}, "no usable expression"),
        ({"next": {"patches": [{"template": "a: b", "type": "odd"}]}}, "json, merge or strategic"),
    ],
)
def test_unusable_stages_are_refused(spec: dict[str, Any], why: str) -> None:
    """A Stage that would not do what it says is refused by name, field and reason."""
    with pytest.raises(StageError, match=why) as refused:
        stage("mine", **spec)
    assert "Stage 'mine'" in str(refused.value)


def test_without_selector_a_stage_is_dropped() -> None:
    """No selector matches nothing; an empty one everything."""
    assert load.read_stage({"spec": {"resourceRef": {"kind": "Pod"}, "next": {}}}) is None
    assert matching.matching_stages([stage()], subject())
