"""What a file of a decision may hold has a name in files that hangs by no name of the code."""

from __future__ import annotations

import inspect
import json
import pkgutil
import typing
from collections import Counter
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

import gpusched
from gpusched import placement
from gpusched.api.meta.identity import UID, GangKey
from gpusched.api.pod.pod import PodPhase
from gpusched.api.queue.start_errors import StartKnownBy
from gpusched.cache.snapshot import ObservedSnapshot, Snapshot, StartEstimate
from gpusched.config.model import Config
from gpusched.io.decisions import file_names
from gpusched.io.decisions.entity_codec import UnreadableGraph, decode, encode
from gpusched.io.decisions.file_names import FIELDS, LATER, TAGS, WITHIN, fields_of, tag_in, tag_of
from gpusched.io.decisions.plan_json import plan_as_json
from gpusched.placement.model.problem import SearchOutcome
from gpusched.session.framework.reasons import Reason
from gpusched.session.state.plan import (
    BudgetStatus,
    ClaimBind,
    EvictionChain,
    EvictionCount,
    PendingReason,
    Plan,
    ReservationStatus,
    TopologyStatus,
)

OF_0_1_0: dict[str, Any] = json.loads(
    Path(__file__).with_name("0.1.0").joinpath("names.json").read_text()
)
"""Names that files of 0.1.0 hold: the tag of each class, fields and members by tag, fields of plans."""
ENUMS = [cls for cls in TAGS if issubclass(cls, Enum)]


# -- what a file may hold ----------------------------------------------------------------------
def parts(hint: Any, names: dict[str, Any], known: set[str]) -> Iterator[type[Any]]:
    """Classes that a type is made of; ``known`` are aliases that hold themselves."""
    if isinstance(hint, typing.ForwardRef):
        hint = hint.__forward_arg__
    if isinstance(hint, str):
        if hint in known:
            return
        known.add(hint)
        hint = eval(hint, names)
    if isinstance(hint, typing.NewType):
        hint = hint.__supertype__
    if typing.get_origin(hint) is np.ndarray:
        return
    inner = typing.get_args(hint)
    assert hint not in {Any, object}, "a field of any type can hold what has no tag"
    if isinstance(hint, type) and not inner:
        yield hint
    if typing.get_origin(hint) is not typing.Literal:
        for each in inner:
            if each is not ...:
                yield from parts(each, names, known)


def reached(*roots: type[Any]) -> dict[type[Any], str]:
    """Our classes that values of some classes may hold, with the way to each."""
    found: dict[type[Any], str] = {}
    left = [(root, root.__name__) for root in roots]
    while left:
        cls, way = left.pop()
        if cls in found or cls.__module__.partition(".")[0] != gpusched.__name__:
            continue
        found[cls] = way
        left += [(each, f"{way}, a {each.__name__}") for each in cls.__subclasses__()]
        if not issubclass(cls, Enum):
            hints, names = typing.get_type_hints(cls), vars(import_module(cls.__module__))
            for field in fields_of(cls) or ():
                near = parts(hints[field.name], {**ALIASES, **names}, set())
                left += [(each, f"{way}.{field.name}") for each in near]
    return found


def modules(package: Any) -> Iterator[Any]:
    """All modules of a package."""
    for each in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        yield import_module(each.name)


def jobs() -> list[type[Any]]:
    """Classes of data that run a search, see ``placement.problem.Job``."""
    return [
        cls
        for module in modules(placement)
        for cls in vars(module).values()
        if inspect.isclass(cls) and cls.__module__ == module.__name__
        if attrs.has(cls) and callable(getattr(cls, "run", None))
    ]


ALIASES = {
    name: value
    for module in modules(gpusched.config)
    for name, value in vars(module).items()
    if name == "Argument"
}


def recorded() -> dict[type[Any], str]:
    """All that the inputs of a decision and the answers of its searches may hold."""
    return reached(Snapshot, Config, *(typing.get_type_hints(job.run)["return"] for job in jobs()))


# -- tags ----------------------------------------------------------------------------------------
def test_every_class_that_is_recorded_has_a_tag() -> None:
    """One without it makes every decision that holds it unrecordable."""
    classes = recorded()
    del classes[
        ObservedSnapshot
    ]  # a session looks at it; what is recorded is the snapshot that it shows
    missing = [f"{cls.__name__}: {way}" for cls, way in classes.items() if cls not in TAGS]
    assert missing == []
    assert len(recorded()) > 50


def test_every_search_has_a_tag() -> None:
    """A file names the search that each answer belongs to."""
    assert len(jobs()) >= 3
    assert [job.__name__ for job in jobs() if job not in TAGS] == []


def test_no_tag_is_used_twice_or_for_nothing() -> None:
    """A file that held it could not be read."""
    assert [tag for tag, times in Counter(TAGS.values()).items() if times > 1] == []
    beside = {Reason, StartKnownBy}  # stand where fields are said to hold text
    assert {*TAGS} - {*recorded(), *jobs()} == beside


def test_tags_are_no_names_of_classes() -> None:
    """Words in lower case: nothing that renames a class in the code takes them for its name."""
    for tag in TAGS.values():
        assert tag == tag.lower()
        assert tag_in(tag) == tag


def test_names_of_0_1_0_stand_for_tags() -> None:
    """Its files have paths of modules and names of classes; two classes had one name."""
    assert {tag_in(name) for name in OF_0_1_0["classes"]} <= {*TAGS.values()}
    assert {name: tag_in(name) for name in OF_0_1_0["classes"]} == OF_0_1_0["classes"]


# -- fields --------------------------------------------------------------------------------------
def test_fields_of_0_1_0_are_still_there() -> None:
    """Under their names in files (``FIELDS``, where the code has another); new ones have a default."""
    by_tag = {tag: cls for cls, tag in TAGS.items()}
    for tag, written in OF_0_1_0["fields"].items():
        fields = fields_of(by_tag[tag]) or ()
        inside = {name for names in WITHIN.get(by_tag[tag], {}).values() for name in names}
        assert {*written} - {each.written for each in fields} - inside == set(), tag
        new = [each for each in fields if each.written not in written]
        assert [each.name for each in new if each.default is None] == [], tag


def test_members_of_0_1_0_are_still_there() -> None:
    """Files have the names of members; one that is renamed keeps its old name as an alias."""
    by_tag = {tag: cls for cls, tag in TAGS.items()}
    for tag, written in OF_0_1_0["members"].items():
        assert [name for name in written if name not in by_tag[tag].__members__] == [], tag


def test_plans_have_the_fields_of_0_1_0() -> None:
    """Else a decision of then could not be compared with one of now, byte for byte."""
    now = {
        way: sorted(
            FIELDS.get(cls, {}).get(each.name, each.name)
            for each in attrs.fields(cls)
            if each.name not in LATER.get(cls, ())
        )
        for cls, way in reached(Plan).items()
        if cls not in TAGS
        # which came later, in fields that may be left out
        and cls
        not in {
            BudgetStatus,
            ClaimBind,
            EvictionChain,
            EvictionCount,
            ReservationStatus,
            StartEstimate,
        }
    }
    assert sorted(now.values()) == sorted(OF_0_1_0["plan"].values())


def test_a_new_field_of_a_plan_is_left_out_at_its_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes of old plans stay what they were until somebody uses it."""
    monkeypatch.setitem(LATER, Plan, frozenset({"topologies"}))
    monkeypatch.setitem(FIELDS, Plan, {"preemptions": "evictions"})
    assert {"topologies", "preemptions"} & {*plan_as_json(Plan(revision=1))} == set()
    assert "evictions" in plan_as_json(Plan(revision=1))
    ready = PendingReason(reason="Ready", message="")
    status = TopologyStatus(name="t", uid=UID("u"), generation=1, is_ready=True, ready=ready)
    assert plan_as_json(Plan(revision=1, topologies=(status,)))["topologies"][0]["name"] == "t"


def test_a_renamed_field_keeps_its_name_in_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line of ``FIELDS`` is all that a better name costs."""

    @attrs.frozen
    class Better:
        amount: int
        added: tuple[int, ...] = (1,)

    monkeypatch.setitem(TAGS, Better, "better")
    monkeypatch.setitem(FIELDS, Better, {"amount": "lump"})
    monkeypatch.setitem(file_names.CLASSES, "better", Better)
    assert encode((Better(3),))["classes"] == [["better", ["lump", "added"]]]
    assert decode(encode((Better(3, ()),))) == (Better(3, ()),)
    old = {"classes": [["gpusched.somewhere.Better", ["lump"]]], "nodes": [[0, 3]], "root": [0]}
    assert decode(old) == Better(3)
    with pytest.raises(UnreadableGraph, match=r"has other fields in this version.*: amount, lump"):
        decode({"classes": [["better", ["amount"]]], "nodes": [[0, 3]], "root": [0]})


def test_a_class_that_is_renamed_and_moved_is_read_as_before() -> None:
    """The name and module that it has now are nowhere in what is written."""
    text = json.dumps(encode((GangKey("Job", "a", "b"), PodPhase.RUNNING, SearchOutcome.OPTIMAL)))
    assert "gpusched" not in text
    assert "GangKey" not in text
    assert tag_of(GangKey) == "gang-key"
