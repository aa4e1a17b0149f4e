"""Classes of ``base.classes`` answer as those of attrs do, and cost less to make."""

from __future__ import annotations

import pickle

import attrs
import pytest

from gpusched.base import classes


def make(frozen, define):
    """Classes of every form that we have, by the decorators of one of both."""

    @frozen
    class Plain:
        a: int
        b: str = "b"

    @frozen(kw_only=True)
    class Uncounted:
        a: int
        note: str = attrs.field(default="", eq=False, repr=False)
        shown: int = attrs.field(default=2, repr=lambda value: f"<{value}>")

    @frozen(slots=True, eq=False)
    class Itself:
        a: int

    @frozen(cache_hash=True)
    class Cached:
        a: int

    @frozen(order=True)
    class Ordered:
        a: int

    @frozen
    class Nothing:
        pass

    @frozen
    class Own:
        a: int

        def __repr__(self):
            return "own"

        def __eq__(self, other):
            return isinstance(other, Own)

        def __hash__(self):
            return 7

    @frozen
    class Below(Plain):
        c: tuple[int, ...] = ()

    @define
    class Assignable:
        a: int
        later: int = attrs.field(init=False, eq=False)

    return Plain, Uncounted, Itself, Cached, Ordered, Nothing, Own, Below, Assignable


OURS, THEIRS = make(classes.frozen, classes.define), make(attrs.frozen, attrs.define)
BY_NAME = list(zip(OURS, THEIRS, strict=True))


def drawn(cls):
    """Objects of a class, each twice."""
    names = [each.name for each in attrs.fields(cls) if each.init]
    if not names:
        return [cls(), cls()]
    values = [1, 1, 2, 2]
    made = [cls(**{names[0]: value}) for value in values]
    if len(names) > 1:
        made += [attrs.evolve(made[0], **{names[1]: "x"}), attrs.evolve(made[0], **{names[1]: "x"})]
    return made


@pytest.mark.parametrize(("ours", "theirs"), BY_NAME, ids=[each.__name__ for each in OURS])
def test_they_answer_as_those_of_attrs(ours, theirs):
    """Repr, equality and hash of every form of class, asked twice as the first question compiles."""
    for _ in range(2):
        mine, other = drawn(ours), drawn(theirs)
        assert [repr(each) for each in mine] == [repr(each) for each in other]
        assert [[a == b for b in mine] for a in mine] == [[a == b for b in other] for a in other]
        assert [[a != b for b in mine] for a in mine] == [[a != b for b in other] for a in other]
        assert (ours.__hash__ is None) == (theirs.__hash__ is None)
        if ours.__hash__ is not None:
            assert len(set(mine)) == len(set(other))
        assert all(each not in ("another", None) for each in mine)


def test_objects_of_a_class_below_are_not_equal():
    """The fields alone do not make equal: the class counts."""
    plain, below = OURS[0], OURS[7]
    assert plain(1) != below(1)
    assert below(1) == below(1)
    assert below(1, c=(1,)) != below(1, c=(2,))


def test_an_object_within_itself_is_shown():
    """A circle ends in three dots."""
    itself = OURS[8](1)
    itself.a = itself
    assert repr(itself).endswith("Assignable(a=..., later=NOTHING)")


def test_objects_are_pickled():
    """As those of attrs are."""
    mine = Pickled(1)
    assert pickle.loads(pickle.dumps(mine)) == mine


@classes.frozen
class Pickled:
    """One that can be found by its name."""

    a: int


def test_a_field_compared_in_its_own_way_is_refused():
    """What would be compared otherwise than asked for is no class."""
    with pytest.raises(TypeError, match="compared in their own way"):

        @classes.frozen
        class _Folded:
            a: str = attrs.field(eq=str.lower)


def test_methods_are_compiled_when_they_are_called():
    """Neither comparison nor hash is there before somebody asks."""

    @classes.frozen
    class Fresh:
        a: int

    before = Fresh.__eq__, Fresh.__hash__
    assert Fresh(1) == Fresh(1)
    assert hash(Fresh(1)) == hash(Fresh(1))
    assert all(
        was is not now for was, now in zip(before, (Fresh.__eq__, Fresh.__hash__), strict=True)
    )
