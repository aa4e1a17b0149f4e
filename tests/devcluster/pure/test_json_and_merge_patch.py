"""JSON patch and merge patch."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.devcluster.apimachinery.json_values import json_equal
from gpusched.devcluster.apiserver.patching.strategic import PatchError, json_patch, merge_patch

scalars = st.none() | st.booleans() | st.integers(-9, 9) | st.text("abc~/", max_size=3)
documents = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab~/", max_size=2), inner),
    max_leaves=12,
)
objects = st.dictionaries(st.text("ab", max_size=2), documents, max_size=4)


def without_nulls(value):
    if isinstance(value, dict):
        return {k: without_nulls(v) for k, v in value.items() if v is not None}
    return value


@given(documents, documents)
def test_merge_is_idempotent(doc, patch):
    """Merging the same patch twice is merging it once."""
    once = merge_patch(doc, patch)
    assert merge_patch(once, patch) == once


@given(objects)
def test_merging_nothing_changes_nothing(doc):
    """An empty patch is the identity."""
    assert merge_patch(doc, {}) == doc


@given(documents, documents)
def test_inputs_survive(doc, patch):
    """Neither the document nor the patch is changed."""
    kept = copy.deepcopy((doc, patch))
    merge_patch(doc, patch)
    assert (doc, patch) == kept


@given(objects, objects)
def test_a_patch_of_objects_leaves_its_own_values(doc, patch):
    """What the patch sets is there afterwards, and what it nulls is not."""
    merged = merge_patch(doc, patch)
    for key, value in patch.items():
        if value is None:
            assert key not in merged
        elif not isinstance(value, dict):
            assert json_equal(merged[key], value)


@given(objects, objects)
def test_replacing_the_root_gives_the_value(doc, value):
    """A replace of the whole document is its value."""
    assert json_patch(doc, [{"op": "replace", "path": "", "value": value}]) == value


@given(objects, st.text("ab~/", max_size=3), documents)
def test_add_then_remove_is_the_identity(doc, key, value):
    """Adding a new key and removing it gives the document back, escapes included."""
    pointer = "/" + key.replace("~", "~0").replace("/", "~1")
    kept = copy.deepcopy(doc)
    added = json_patch(doc, [{"op": "add", "path": pointer, "value": value}])
    assert json_equal(added[key], value)
    without = {k: v for k, v in doc.items() if k != key}
    assert json_patch(added, [{"op": "remove", "path": pointer}]) == without
    assert doc == kept


# The examples of RFC 6902, appendix A, and a few that tempt Python.
@pytest.mark.parametrize(
    ("doc", "ops", "expected"),
    [
        ({"foo": ["a", "b"]}, [("add", "/foo/1", "x")], {"foo": ["a", "x", "b"]}),
        ({"foo": ["a"]}, [("add", "/foo/-", ["b"])], {"foo": ["a", ["b"]]}),
        ({"foo": ["a", "x", "b"]}, [("remove", "/foo/1", None)], {"foo": ["a", "b"]}),
        ({"a": 1, "b": 2}, [("replace", "/a", 3)], {"a": 3, "b": 2}),
        ({"/": 9, "~1": 10}, [("test", "/~01", 10)], {"/": 9, "~1": 10}),
        ({"a": 1}, [("test", "/b", None)], {"a": 1}),
        ({"a": [1, 2]}, [("replace", "/a/0", 7)], {"a": [7, 2]}),
    ],
)
def test_operations_of_the_rfc(doc, ops, expected):
    """Each operation does what RFC 6902 shows."""
    patch = [{"op": op, "path": path, "value": value} for op, path, value in ops]
    assert json_patch(doc, patch) == expected


def test_move_and_copy():
    """Move takes away and copy does not."""
    doc = {"a": {"x": 1}, "b": {}}
    moved = json_patch(doc, [{"op": "move", "from": "/a/x", "path": "/b/y"}])
    copied = json_patch(doc, [{"op": "copy", "from": "/a/x", "path": "/b/y"}])
    assert moved == {"a": {}, "b": {"y": 1}}
    assert copied == {"a": {"x": 1}, "b": {"y": 1}}


@pytest.mark.parametrize(
    ("op", "kind"),
    [
        ({"op": "test", "path": "/a", "value": "z"}, "test"),
        ({"op": "test", "path": "/flag", "value": 1}, "test"),
        ({"op": "test", "path": "/zzz", "value": 1}, "test"),
        ({"op": "remove", "path": "/zzz"}, "path"),
        ({"op": "replace", "path": "/zzz", "value": 1}, "path"),
        ({"op": "add", "path": "/zzz/y", "value": 1}, "path"),
        ({"op": "add", "path": "/list/2", "value": 1}, "path"),
        ({"op": "add", "path": "/list/01", "value": 1}, "path"),
        ({"op": "add", "path": "/list/-9", "value": 1}, "path"),
        ({"op": "add", "path": "/list/" + "9" * 5000, "value": 1}, "path"),
        ({"op": "move", "from": "/obj", "path": "/obj/in"}, "path"),
        ({"op": "spin", "path": "/a"}, "malformed"),
        ({"op": "copy", "path": "/a"}, "malformed"),
        ("x", "malformed"),
    ],
)
def test_refusals(op, kind):
    """A patch that cannot be applied says which kind of fault it is."""
    with pytest.raises(PatchError) as fault:
        json_patch({"a": "1", "flag": True, "list": [1], "obj": {}}, [op])
    assert fault.value.kind == kind
