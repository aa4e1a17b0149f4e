"""Entities come back as they were, sharing what they shared; a file runs nothing."""

from __future__ import annotations

import contextlib
import math
from types import MappingProxyType
from typing import Any

import attrs
import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpusched.api.gang.move_record import MoveRecord, MoveTarget
from gpusched.api.gang.pod_group import GangTerms
from gpusched.api.meta.identity import GangKey, ObjectKey
from gpusched.api.meta.resources import Resources
from gpusched.api.pod.pod import GangAnnotations, KubeletRefusal, PodPhase
from gpusched.cache.ledger import Ledger
from gpusched.io.decisions.entity_codec import UnreadableGraph, Unrecordable, decode, encode
from gpusched.io.decisions.file_names import TAGS

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=2**62, max_value=2**1024),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
    st.sampled_from(PodPhase),
)
KEYS = st.one_of(st.text(), st.integers(), st.builds(ObjectKey, st.text(), st.text()))
ARRAYS = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1)).map(lambda each: np.array(each, dtype=np.int64)),
    st.lists(st.booleans()).map(lambda each: np.array(each, dtype=np.bool_)),
    st.tuples(st.integers(0, 3), st.integers(0, 3)).map(np.zeros),
)


def holders(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(inner),
        st.lists(inner).map(tuple),
        st.dictionaries(KEYS, inner),
        st.dictionaries(KEYS, inner).map(MappingProxyType),
        st.frozensets(KEYS),
        st.builds(Resources, st.lists(st.tuples(st.text(), st.integers())).map(tuple)),
        st.builds(MoveTarget, st.text(), st.integers(), inner),
        st.builds(KubeletRefusal, inner, st.floats(allow_nan=False)),
        st.tuples(inner).map(lambda each: (each[0], each[0])),
    )


def same(one: Any, other: Any) -> bool:
    """Equal, of equal types, all the way down."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return (
            one.dtype == other.dtype
            and one.flags.writeable == other.flags.writeable
            and np.array_equal(one, other)
        )
    if attrs.has(type(one)):
        names = [each.name for each in attrs.fields(type(one))]
        return all(same(getattr(one, name), getattr(other, name)) for name in names)
    if isinstance(one, dict | MappingProxyType):
        return same(list(one.items()), list(other.items()))
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(st.recursive(st.one_of(SCALARS, ARRAYS), holders, max_leaves=6))
def test_what_goes_in_comes_out(value: Any) -> None:
    """Through JSON text, with types, order and sizes of numbers; again gives the same text."""
    text = msgspec.json.encode(encode(value))
    back = decode(msgspec.json.decode(text))
    assert same(value, back)
    assert msgspec.json.encode(encode(back)) == text


def test_what_is_shared_stays_shared() -> None:
    """And what was only equal stays apart: some classes are compared by identity."""
    one, twin = Resources((("a", 1),)), Resources((("a", 1),))
    back = decode(encode((one, one, twin)))
    assert back[0] is back[1]
    assert back[0] is not back[2]
    assert back[0] == back[2]


def test_numbers_that_json_lacks() -> None:
    """Infinities, no number, scalars of arrays, a mask of a thousand slots."""
    back = decode(encode((math.inf, -math.inf, np.int64(7), (1 << 1023) | 1)))
    assert back == (math.inf, -math.inf, 7, (1 << 1023) | 1)
    assert type(back[2]) is np.int64
    assert math.isnan(decode(encode((math.nan,)))[0])


def test_read_only_arrays_stay_so() -> None:
    """Views share arrays."""
    array = np.arange(3)
    array.setflags(write=False)
    assert not decode(encode((array,)))[0].flags.writeable


def test_what_is_no_data_is_refused() -> None:
    """By name, so that somebody adds the module."""
    with pytest.raises(Unrecordable, match=r"gpusched\.cache\.ledger\.Ledger cannot be recorded"):
        encode((Ledger(),))
    with pytest.raises(Unrecordable, match="function"):
        encode({"f": same})
    with pytest.raises(Unrecordable, match="object"):
        encode(np.array([object()]))


def node(*parts: Any, classes: Any = ()) -> Any:
    return {"root": [0], "classes": list(classes), "nodes": [list(parts)]}


TERMS = ["terms", [each.name for each in attrs.fields(GangTerms)]]
KEY = ["gang-key", list(GangKey._fields)]
PHASE = ["pod-phase", []]


@pytest.mark.parametrize(
    "document",
    [
        node(0, "x", classes=[["os.system", []]]),
        node(0, "x", classes=[["builtins.eval", []]]),
        node(0, "x", classes=[["gpusched.cache.cache.Cache", []]]),
        node(0, "x", classes=[["gpusched.api.pod.pod.msgspec", []]]),
        node(0, "a", "b", classes=[["owner", ["kind", "name"]]]),
        node(0, "a", "b", "c", "d", classes=[["owner", ["kind", "name", "uid", "more"]]]),
        node(0, "a", "b", "c", "d", classes=[["owner", ["kind", "name", "uid", "uid"]]]),
        node(0, True, classes=[TERMS]),
        node(-1, True, classes=[TERMS]),
        node(0, "a", "b", "c", classes=[KEY]),
        node("n", 0, "a", classes=[KEY]),
        node("n", 0, *["a"] * len(TERMS[1]), classes=[TERMS]),
        node("e", 0, "NOWHERE", classes=[PHASE]),
        node("e", 0, "__class__", classes=[PHASE]),
        node("e", 0, "a", classes=[KEY]),
        node("a", "|O", [1], True, "AAAAAAAAAAA="),
        node("a", "<i8", [2], True, "AAAAAAAAAAA="),
        node("a", "<i8", [1], True, "not base64!"),
        node("q", 1),
        node("t", [0]),
        node("t", [-1]),
        node("t", {"a": 1}),
        node("d", "one key"),
        node("d", [[]], 1),
        node("i", "not hex"),
        node(),
        {"root": [0], "classes": []},
        {"root": [5], "classes": [], "nodes": []},
        {"root": [0], "classes": 3, "nodes": []},
        [],
        None,
    ],
)
def test_documents_of_others_are_refused(document: Any) -> None:
    """Nothing is imported, called or built that is not known data; the sentence says why."""
    with pytest.raises(UnreadableGraph):
        decode(document)


@settings(max_examples=60)
@given(st.data())
def test_no_damage_is_another_fault(data: st.DataObject) -> None:
    """Any part of a document may be anything."""
    document = encode(
        (
            GangTerms(),
            GangKey("Job", "a", "b"),
            [PodPhase.RUNNING],
            GangAnnotations(),
            MoveRecord(1.0, ()),
        )
    )
    nodes = document["nodes"]
    number = data.draw(st.integers(0, len(nodes) - 1))
    place = data.draw(st.integers(0, max(0, len(nodes[number]) - 1)))
    anything = st.one_of(
        st.none(),
        st.integers(-5, 99),
        st.text(max_size=3),
        st.lists(st.integers(-2, 99), max_size=2),
    )
    nodes[number][place : place + 1] = [data.draw(anything)]
    with contextlib.suppress(UnreadableGraph):
        decode(document)


def test_only_data_is_known() -> None:
    """No class that a file may name acts when it is built: none has its own ``__new__``."""
    for cls in TAGS:
        assert cls.__module__.startswith("gpusched.")
        assert not issubclass(cls, BaseException)
        assert "__new__" not in vars(cls) or issubclass(cls, tuple) or hasattr(cls, "__members__")
