"""Whatever CRD and object come: answers are values or named refusals, never a crash."""

import copy

from hypothesis import event, given, settings
from hypothesis import strategies as st

from gpusched.devcluster.apiserver.patching.strategic import (
    PatchError,
    json_patch,
    merge_patch,
    strategic_merge,
)
from gpusched.devcluster.registry.custom.validation import SchemaRefused, compile_version
from gpusched.devcluster.schema.schema import load_builtin
from tests.populations import examples

scalars = (
    st.none() | st.booleans() | st.integers(-3, 9) | st.floats(-2, 2) | st.text("ab1", max_size=3)
)
names = st.sampled_from(["a", "b", "spec", "metadata", "kind"])
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=10,
)
leaves = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["string", "integer", "number", "boolean", "object", "array"]),
        "enum": st.lists(scalars, min_size=1, max_size=2),
        "default": values,
        "nullable": st.booleans(),
        "minimum": st.integers(0, 3),
        "maxLength": st.integers(0, 3),
        "maxItems": st.integers(0, 2),
        "minProperties": st.integers(0, 2),
        "pattern": st.sampled_from(["^a", "(", "1$"]),
        "format": st.sampled_from(["date-time", "duration", "nonsense", "int32", "uuid"]),
        "required": st.lists(names, max_size=2),
        "x-kubernetes-int-or-string": st.booleans(),
        "x-kubernetes-preserve-unknown-fields": st.booleans(),
        "x-kubernetes-embedded-resource": st.booleans(),
        "x-kubernetes-list-type": st.sampled_from(["atomic", "set", "map", "other"]),
        "x-kubernetes-list-map-keys": st.lists(names, max_size=1),
        "x-kubernetes-validations": st.lists(
            st.fixed_dictionaries(
                {"rule": st.sampled_from(["self == 1", "self.", "has(self.a)", "oldSelf == self"])}
            ),
            max_size=1,
        ),
    },
)


def grown(inner):
    return st.builds(
        lambda leaf, more: {**leaf, **more},
        leaves,
        st.fixed_dictionaries(
            {},
            optional={
                "properties": st.dictionaries(names, inner, max_size=3),
                "additionalProperties": inner | st.booleans(),
                "items": inner | st.lists(inner, max_size=1),
                "anyOf": st.lists(leaves, max_size=2),
                "oneOf": st.lists(leaves, max_size=2),
                "not": leaves,
            },
        ),
    )


schemas = st.recursive(leaves, grown, max_leaves=6)
typed = st.fixed_dictionaries(
    {"type": st.just("object"), "properties": st.dictionaries(names, schemas, max_size=3)}
)
objects = st.dictionaries(names, values, max_size=4)


@settings(max_examples=examples(75, whole=300))
@given(typed, objects, objects)
def test_any_schema_and_any_object(raw, obj, old):
    """A schema compiles or is refused with field errors; an object passes or gets field errors."""
    try:
        version = compile_version(raw)
    except SchemaRefused as refusal:
        version, told = None, refusal.errors
    else:
        told = []
    if version is None:
        event("refused")
        assert told
        assert all(e.field.startswith("spec.validation") and e.text for e in told)
        return
    event("compiled")
    kept = copy.deepcopy(obj)
    for one in (obj, old, kept):
        one.pop("metadata", None)
    clean = version.schema.apply_defaults(version.schema.prune(obj))
    before = version.schema.apply_defaults(version.schema.prune(old))
    version.schema.strict_errors(obj)
    for errors in (version.validate(clean), version.validate(clean, before)):
        assert all(e.text.startswith(e.type) for e in errors)
    assert version.schema.prune(clean) == clean
    assert version.schema.apply_defaults(clean) == clean
    assert obj == kept


PODLIKE = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                [
                    "metadata",
                    "labels",
                    "spec",
                    "containers",
                    "name",
                    "resources",
                    "limits",
                    "cpu",
                    "ports",
                    "status",
                    "conditions",
                    "$patch",
                    "$retainKeys",
                    "nonsense",
                ]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)
PODS = st.dictionaries(st.sampled_from(["metadata", "spec", "status", "x"]), PODLIKE, max_size=3)
POD = load_builtin("", "v1", "Pod")


@settings(max_examples=examples(75, whole=300))
@given(PODS, PODS)
def test_any_body_for_a_pod(obj, patch):
    """A body that decodes can be pruned, checked and patched; one that does not says why."""
    why = POD.decode_error(obj)
    POD.strict_errors(obj)
    if why is not None:
        assert why
        return
    pruned = POD.prune(obj)
    assert POD.prune(pruned) == pruned
    assert POD.decode_error(pruned) is None
    assert POD.strict_errors(pruned) == []
    POD.validate(pruned)
    merge_patch(pruned, patch)
    assert refusal(strategic_merge, pruned, patch, POD) in {None, "malformed"}


def refusal(patch, *args):
    """Kind of the refusal of a patch, None when it applies."""
    try:
        patch(*args)
    except PatchError as fault:
        return fault.kind
    return None


@given(values, st.lists(st.dictionaries(st.sampled_from(["op", "path", "from", "value"]),
                                        values | st.sampled_from(["add", "move", "/a", "/0"])),
                        max_size=3))  # fmt: skip
def test_any_json_patch(doc, ops):
    """A JSON patch applies or is refused by kind."""
    assert refusal(json_patch, doc, ops) in {None, "test", "path", "malformed"}


def nested(depth, key="a"):
    doc = 1
    for _ in range(depth):
        doc = {key: doc}
    return doc


def test_deep_documents():
    """Depth that a decoder lets through does not exhaust the stack."""
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = compile_version(free)
    deep = nested(250)
    assert version.validate(version.schema.apply_defaults(version.schema.prune(deep))) == []
    assert merge_patch(deep, deep) == deep
    assert strategic_merge(deep, deep, POD) == deep
