"""CEL rules of custom kinds: the recorded ones, the project's own, and the refusals."""

import json
from pathlib import Path

import pytest
import yaml

from gpusched.devcluster.registry.custom.validation import SchemaRefused, compile_version

ROOT = Path(__file__).parents[3]
RECORDED = [
    step
    for step in json.loads((Path(__file__).parent / "data/custom-resources.json").read_text())[
        "steps"
    ]
    if "wait" not in step and not step.get("setup")
]


def compiled(crd):
    version = crd["spec"]["versions"][0]
    return compile_version(
        version["schema"]["openAPIV3Schema"], scale=version.get("subresources", {}).get("scale")
    )


WIDGET = compiled(RECORDED[0]["request"]["body"])
OURS = {
    crd["spec"]["names"]["kind"]: compiled(crd)
    for file in sorted((ROOT / "manifests/crds").glob("*.yaml"))
    for crd in yaml.safe_load_all(file.read_text())
    if crd["kind"] == "CustomResourceDefinition"
}


def errors_of(version, obj, old=None):
    obj = version.schema.apply_defaults(version.schema.prune(obj))
    return [(e.cause_reason, e.field, e.text) for e in version.validate(obj, old)]


def causes_of(step):
    causes = step["response"]["body"]["details"]["causes"]
    return [(c["reason"], c["field"], c["message"]) for c in causes]


@pytest.mark.parametrize(
    "step", [pytest.param(RECORDED[i], id=RECORDED[i]["step"]) for i in (*range(5, 15),)]
)
def test_recorded_answers_to_creates(step):
    """C3, C4: schema errors, scale errors and rules, or the note that rules were skipped."""
    told = errors_of(WIDGET, step["request"]["body"])
    # The real order of schema errors is that of a hash map.
    assert sorted(told) == sorted(causes_of(step))
    assert told[-1][1] == causes_of(step)[-1][1]


def test_recorded_transition_rule():
    """C4: a rule on oldSelf holds on updates only."""
    step = RECORDED[17]
    old = {"metadata": {"name": "a"}, "spec": {"size": 4, "max": 50, "color": "red"}}
    new = {**old, "spec": {**old["spec"], "color": "blue"}}
    assert errors_of(WIDGET, new, old) == causes_of(step)
    assert errors_of(WIDGET, new) == []


def test_errors_that_were_there_before_are_forgiven():
    """Ratcheting: who changes something else is not blamed for an old fault."""
    old = {"metadata": {"name": "a"}, "spec": {"size": 60, "max": 50}}
    assert errors_of(WIDGET, {**old, "metadata": {"name": "a", "labels": {}}}, old) == []
    assert errors_of(WIDGET, {**old, "spec": {"size": 61, "max": 50}}, old) != []


def rule(text, value, old=None, *, schema=None, **more):
    """Texts of the errors of a rule on the field f."""
    field = {
        **(schema or {"type": "string"}),
        "x-kubernetes-validations": [{"rule": text, **more}],
    }
    version = compile_version({"type": "object", "properties": {"f": field}})
    before = None if old is None else {"f": old}
    return [f"{e.field}: {e.text}" for e in version.validate({"f": value}, before)]


STRINGS = {"type": "array", "items": {"type": "string"}}
NUMBERS = {"type": "array", "items": {"type": "integer"}}


@pytest.mark.parametrize(
    ("text", "value", "schema"),
    [
        ("quantity(self).isGreaterThan(quantity('1Mi'))", "1Gi", None),
        ("quantity(self).compareTo(quantity('1024Mi')) == 0", "1Gi", None),
        ("quantity(self).add(quantity('500m')).sub(1).isLessThan(quantity('1'))", "1", None),
        ("quantity(self).isInteger() && quantity(self).asInteger() == 1000", "1k", None),
        ("isQuantity(self) && !isQuantity('many')", "1", None),
        ("duration(self) >= duration('90s') && duration(self).getMinutes() == 60", "1h", None),
        ("self > timestamp('2026-01-01T00:00:00Z')", "2026-06-01T00:00:00Z",
         {"type": "string", "format": "date-time"}),
        ("self < duration('2h')", "1h30m", {"type": "string", "format": "duration"}),
        ("self.matches('^a+$') && self.size() == 2", "aa", None),
        ("self.split('.').size() == 2 && self.indexOf('.') == 1", "a.b", None),
        ("self.lowerAscii() == 'ab' && self.substring(1) == 'B'", "AB", None),
        ("'%s has %d'.format([self, 2]) == 'a has 2'", "a", None),
        ("self.sum() == 6 && self.max() == 3 && self.min() == 1 && self.isSorted()", [1, 2, 3],
         NUMBERS),
        ("self.all(x, self.exists_one(y, x == y)) && 'b' in self", ["a", "b"], STRINGS),
        ("self.filter(x, x > 1).map(x, x * 2) == [4, 6]", [1, 2, 3], NUMBERS),
        ("self / 2.0 == 1.5", 3, {"type": "number"}),
        ("self.all(k, self[k] > 0) && self.map(k, self[k]).sum() == 3", {"a": 1, "b": 2},
         {"type": "object", "additionalProperties": {"type": "integer"}}),
        ("has(self.a__dash__b) && self.__namespace__ == 'n'", {"a-b": 1, "namespace": "n"},
         {"type": "object", "properties": {"a-b": {"type": "integer"},
                                           "namespace": {"type": "string"}}}),
        ("has(self.namespace) && self.namespace == 'n' && self.?for.orValue('x') == 'x'",
         {"namespace": "n"},
         {"type": "object", "properties": {"for": {"type": "string"},
                                           "namespace": {"type": "string"}}}),
        ("self.all(t, !has(t.metadata.namespace) || size(t.metadata.namespace) == 0)",
         [{"metadata": {"name": "a"}}, {"metadata": {"namespace": ""}}],
         {"type": "array", "items": {"type": "object", "properties": {"metadata": {
             "type": "object", "properties": {"name": {"type": "string"},
                                              "namespace": {"type": "string"}}}}}}),
        ("type(self) == int || self == '50%'", "50%",
         {"x-kubernetes-int-or-string": True}),
    ],
)  # fmt: skip
def test_functions(text, value, schema):
    """What Kubernetes adds to CEL works, and its negation fails."""
    assert rule(text, value, schema=schema) == []
    assert rule(f"!({text})", value, schema=schema) == [f"f: Invalid value: failed rule: !({text})"]


def test_messages_reasons_and_field_paths():
    """A rule tells its own message at its own place for its own reason."""
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    told = rule("self.a > 1", {"a": 1}, schema=schema, message="too small", fieldPath=".a")
    assert told == ["f.a: Invalid value: too small"]
    told = rule("false", "x", message="no", reason="FieldValueForbidden")
    assert told == ["f: Forbidden: no"]
    told = rule("false", "x", message="no", messageExpression="'not ' + self")
    assert told == ["f: Invalid value: not x"]
    told = rule("false", "x", message="plain", messageExpression="self.substring(9)")
    assert told == ["f: Invalid value: plain"]


def test_a_rule_that_cannot_be_evaluated_fails():
    """A fault while running counts as a failed rule and names it."""
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    assert rule("self.a > 1", {}, schema=schema) == [
        "f: Invalid value: no such key: a evaluating rule: self.a > 1"
    ]
    assert rule("quantity(self).isInteger()", "many")[0].startswith("f: Invalid value: ")


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        ("2026-02-30T00:00:00Z", {"type": "string", "format": "date-time"}),
        (2**70, {"x-kubernetes-int-or-string": True}),
        (2**70, {"type": "integer"}),
        (float(2**70), {"type": "integer"}),
    ],
)
def test_values_beyond_the_rules(value, schema):
    """A value that CEL cannot hold is a field error, not a crash."""
    (told,) = rule("self == self || true", value, schema=schema)[:1]
    assert told.startswith("f: Invalid value")


def test_optional_old_self():
    """With optionalOldSelf a transition rule runs on creation too."""
    text = "!oldSelf.hasValue() || oldSelf.value() == self"
    assert rule(text, "x", optionalOldSelf=True) == []
    assert rule(text, "x", "x", optionalOldSelf=True) == []
    assert rule(text, "x", "y", optionalOldSelf=True) != []


def test_elements_of_keyed_lists_have_a_past():
    """OldSelf of an element is found by its keys; other lists have none."""
    items = {
        "type": "object",
        "required": ["name"],
        "properties": {"name": {"type": "string"}, "n": {"type": "integer"}},
        "x-kubernetes-validations": [{"rule": "self.n >= oldSelf.n", "message": "shrinks"}],
    }
    keyed = {
        "type": "array",
        "items": items,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    }
    version = compile_version({"type": "object", "properties": {"f": keyed}})
    old = {"f": [{"name": "a", "n": 2}, {"name": "b", "n": 2}]}
    new = {"f": [{"name": "b", "n": 3}, {"name": "c", "n": 0}, {"name": "a", "n": 1}]}
    assert [e.field for e in version.validate(new, old)] == ["f[2]"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("self.", "Syntax error"),
        ("foo(self)", "undeclared reference to 'foo'"),
        ("other == 1", "undeclared reference to 'other'"),
        ("self.nope == 1", "undefined field 'nope'"),
        ("has(self.a.nope)", "undefined field 'nope'"),
        ("self.a.b > 'x'", "found no matching overload for '_>_' applied to '(int, string)'"),
        ("self.a.b", "cel expression must evaluate to a bool"),
        (" ", "rule is not specified"),
    ],
)
def test_rules_that_do_not_compile_refuse_the_kind(text, why):
    """A CRD is refused with the rule's place and the reason."""
    inner = {"type": "object", "properties": {"b": {"type": "integer"}}}
    raw = {
        "type": "object",
        "properties": {"a": inner},
        "x-kubernetes-validations": [{"rule": text}],
    }
    with pytest.raises(SchemaRefused) as refusal:
        compile_version(raw)
    (error,) = refusal.value.errors
    assert error.field == "spec.validation.openAPIV3Schema.x-kubernetes-validations[0].rule"
    assert why in error.text


def test_the_projects_own_kinds_compile():
    """Every CRD of manifests/ is structural and its rules compile."""
    assert {"PodGroup", "Queue", "Topology"} <= set(OURS)
    assert all(version.rules for version in OURS.values())


def group(**spec):
    return {"metadata": {"name": "g"}, "spec": {"minMember": 2, "queue": "q", **spec}}


@pytest.mark.parametrize(
    ("kind", "good", "bad", "told"),
    [
        ("PodGroup", group(minTaskMember={"w": 2}), group(minTaskMember={"w": 3}),
         "the sum of minTaskMember must not exceed minMember"),
        ("PodGroup", group(scheduleTimeout="90s"), group(scheduleTimeout="-90s"),
         "must be a duration"),
        ("PodGroup", group(scheduleTimeout="1h30m"), group(scheduleTimeout="long"),
         "must be a duration"),
        ("Queue", {"metadata": {"name": "q"}, "spec": {"deserved": {"cpu": "1"}}},
         {"metadata": {"name": "root"}, "spec": {}}, "the queue root exists by itself"),
        ("Queue", {"metadata": {"name": "q"}, "spec": {"parent": "p"}},
         {"metadata": {"name": "q"}, "spec": {"parent": "q"}}, "cannot be its own parent"),
        ("Queue",
         {"metadata": {"name": "q"}, "spec": {"deserved": {"cpu": "999m"},
                                              "capability": {"cpu": 1}}},
         {"metadata": {"name": "q"}, "spec": {"deserved": {"cpu": "1001m"},
                                              "capability": {"cpu": 1}}},
         "deserved must not exceed capability"),
        ("Topology",
         {"metadata": {"name": "t"}, "spec": {"levels": [
             {"name": "rack", "nodeLabel": "r"}, {"name": "row", "nodeLabel": "s"}]}},
         {"metadata": {"name": "t"}, "spec": {"levels": [
             {"name": "rack", "nodeLabel": "r"}, {"name": "rack", "nodeLabel": "s"}]}},
         "the names of levels must be unique"),
    ],
)  # fmt: skip
def test_the_projects_own_rules(kind, good, bad, told):
    """The rules of manifests/ accept good objects and refuse bad ones with their sentence."""
    assert [e for e in errors_of(OURS[kind], good) if e[2].endswith("evaluating rule")] == []
    assert not [e for e in errors_of(OURS[kind], good) if told in e[2]]
    assert [e for e in errors_of(OURS[kind], bad) if told in e[2]]
