"""Schemas of custom kinds, against the answers recorded from a real server.

``data/custom-resources.json`` is a copy of the recording of that name.
"""

import copy
import json
from pathlib import Path

import pytest

from gpusched.devcluster.apimachinery.field_errors import SKIPPED_RULES_TEXT
from gpusched.devcluster.schema.schema import NotStructural, structural

RECORDED = [
    step
    for step in json.loads((Path(__file__).parent / "data/custom-resources.json").read_text())[
        "steps"
    ]
    if "wait" not in step and not step.get("setup")
]
CRD = RECORDED[0]["request"]["body"]
WIDGET = structural(CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"])


def steps(*indices):
    return [pytest.param(RECORDED[i], id=RECORDED[i]["step"]) for i in indices]


def from_elsewhere(cause):
    """Causes that come from the scale subresource and from CEL, not from the schema."""
    return cause["field"] == ".spec.size" or SKIPPED_RULES_TEXT in cause["message"]


@pytest.mark.parametrize("step", steps(5, 6, 7, 8, 9, 10, 12, 13, 14))
def test_recorded_validation_errors(step):
    """C3: an invalid object gives exactly the recorded causes, whatever their order."""
    obj = WIDGET.apply_defaults(WIDGET.prune(step["request"]["body"]))
    errors = [(e.cause_reason, e.field, e.text) for e in WIDGET.validate(obj)]
    causes = step["response"]["body"]["details"]["causes"]
    expected = [(c["reason"], c["field"], c["message"]) for c in causes if not from_elsewhere(c)]
    assert sorted(errors) == sorted(expected)


def test_recorded_defaults_and_pruning():
    """C2: defaults are filled, unknown fields dropped, a free subtree kept."""
    body = RECORDED[3]["request"]["body"]
    kept = copy.deepcopy(body)
    obj = WIDGET.apply_defaults(WIDGET.prune(body))
    assert obj["spec"] == RECORDED[3]["response"]["body"]["spec"]
    assert body == kept
    assert WIDGET.validate(obj) == []


def test_recorded_strict_error():
    """C2: strict decoding names the unknown field."""
    told = WIDGET.strict_errors(RECORDED[4]["request"]["body"])
    message = RECORDED[4]["response"]["body"]["message"]
    assert message.endswith("strict decoding error: " + ", ".join(told))


def test_recorded_refusal_of_a_schema():
    """C1: a schema without types is refused with every missing type, deepest first."""
    step = RECORDED[30]
    raw = step["request"]["body"]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    with pytest.raises(NotStructural) as fault:
        structural(raw)
    told = [
        {"reason": e.cause_reason, "message": e.text, "field": e.field} for e in fault.value.errors
    ]
    assert told == step["response"]["body"]["details"]["causes"]


def field(schema, value):
    """Texts of the errors of one field f."""
    whole = structural({"type": "object", "properties": {"f": schema}})
    return [f"{e.field}: {e.text}" for e in whole.validate({"f": value})]


@pytest.mark.parametrize(
    ("schema", "good", "bad", "told"),
    [
        (
            {"type": "string", "minLength": 1},
            "x",
            "",
            'f: Invalid value: "": f in body should be at least 1 chars long',
        ),
        (
            {"type": "string", "maxLength": 2},
            "xy",
            "xyz",
            "f: Too long: may not be more than 2 bytes",
        ),
        (
            {"type": "integer", "maximum": 5},
            5,
            6,
            "f: Invalid value: 6: f in body should be less than or equal to 5",
        ),
        (
            {"type": "integer", "minimum": 5, "exclusiveMinimum": True},
            6,
            5,
            "f: Invalid value: 5: f in body should be greater than 5",
        ),
        (
            {"type": "array", "minItems": 1, "items": {"type": "string"}},
            ["a"],
            [],
            "f: Invalid value: 0: f in body should have at least 1 items",
        ),
        (
            {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            ["a", "b"],
            ["a", "a"],
            'f[1]: Duplicate value: "a"',
        ),
        (
            {"type": "object", "additionalProperties": {"type": "integer"}},
            {"a": 1},
            {"a": "1"},
            'f.a: Invalid value: "string": f.a in body must be of type integer: "string"',
        ),
        (
            {"type": "string", "format": "date-time"},
            "2026-01-02T03:04:05Z",
            "soon",
            'f: Invalid value: "soon": f in body must be of type date-time: "soon"',
        ),
        (
            {"type": "string", "format": "duration"},
            "1h30m",
            "long",
            'f: Invalid value: "long": f in body must be of type duration: "long"',
        ),
        (
            {"x-kubernetes-int-or-string": True},
            "50%",
            True,
            'f: Invalid value: "boolean": f in body must be of type integer,string: "boolean"',
        ),
        (
            {"type": "string"},
            "x",
            None,
            'f: Invalid value: "null": f in body must be of type string: "null"',
        ),
        (
            {"type": "boolean", "enum": [True]},
            True,
            False,
            'f: Unsupported value: false: supported values: "true"',
        ),
        (
            {"type": "integer", "multipleOf": 8},
            16,
            12,
            "f: Invalid value: 12: f in body should be a multiple of 8",
        ),
    ],
)
def test_limits(schema, good, bad, told):
    """Each limit accepts what fits and tells what does not."""
    assert field(schema, good) == []
    assert field(schema, bad) == [told]


def test_nullable_fields_take_null_and_others_take_their_default():
    """A null stays where it is allowed and gives way to a default where it is not."""
    schema = structural(
        {
            "type": "object",
            "properties": {
                "a": {"type": "string", "nullable": True, "default": "x"},
                "b": {"type": "string", "default": "y"},
            },
        }
    )
    assert schema.apply_defaults({"a": None, "b": None}) == {"a": None, "b": "y"}
    assert schema.validate({"a": None}) == []


def test_one_of():
    """Exactly one alternative must hold."""
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
    }
    assert field(schema, {"a": "1"}) == []
    assert field(schema, {"a": "1", "b": "2"}) == [
        (
            'f: Invalid value: "": "f" must validate one and only one schema (oneOf). '
            "Found 2 valid alternatives"
        )
    ]


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (
            {"type": "array", "items": {"type": "string"}},
            'type: Invalid value: "array": must be object at the root',
        ),
        (
            {"type": "object", "properties": {"a": {"type": "array"}}},
            "properties[a].items: Required value: must be specified",
        ),
        (
            {"type": "object", "properties": {"a": {"type": "string", "default": 1}}},
            (
                'properties[a].default: Invalid value: "integer": '
                ' in body must be of type string: "integer"'
            ),
        ),
        (
            {"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}},
            "properties[a].pattern: Invalid value",
        ),
        (
            {"type": "object", "anyOf": [{"properties": {"a": {"minimum": 1}}}]},
            "properties[a]: Required value: must not be undefined",
        ),
        (
            {"type": "object", "allOf": [{"type": "object"}]},
            "allOf[0].type: Forbidden: must be empty to be structural",
        ),
    ],
)
def test_refused_schemas(raw, told):
    """A schema that could not be pruned or defaulted by is refused with the place and reason."""
    with pytest.raises(NotStructural) as fault:
        structural(raw, path="s")
    assert [e for e in fault.value.errors if f"{e.field}: {e.text}".startswith(f"s.{told}")]
