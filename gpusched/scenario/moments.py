"""A timeline unrolled: every moment at which something is done, and what, drawn and rendered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final, cast

import attrs

from gpusched.devcluster.draws import KeyedRandom
from gpusched.limits import SCENARIO_COUNT_MAX
from gpusched.scenario import acts_told
from gpusched.scenario.arrivals import arrivals
from gpusched.scenario.model import (
    Act,
    Apply,
    Cordon,
    Delete,
    Drain,
    Entry,
    Evict,
    FailNode,
    Fault,
    Manifest,
    Obj,
    Patch,
    Place,
    Restart,
    Scale,
    Scenario,
    Submit,
)
from gpusched.scenario.templates import compiled, copier, templates_of
from gpusched.scenario.work import Share, Workload, draws_of
from gpusched.scenario.workloads import manifests_of

STAGE: Final = "Stage"
"""A kind whose templates are its own."""


@attrs.frozen
class Moment:
    """One thing that is done.

    ``act`` and ``sentence`` are made when they are asked for, each time anew: a long timeline is
    kept without its objects.

    Attributes:
        at_s: seconds after the scenario's start.
        number: of the entry in the timeline.
        index: of the repeat, from 0.
    """

    at_s: float
    number: int
    index: int
    _source: _Source = attrs.field(eq=False, repr=False)

    @property
    def place(self) -> Place:
        """Where the entry stands."""
        return self._source.entry.place

    @property
    def unchecked(self) -> bool:
        """Whether it may fail: what it names need not be there, nor be taken by the server."""
        return self._source.entry.unchecked

    @property
    def act(self) -> Act:
        """What is done, with nothing left to draw or render.

        Raises:
            TemplateError: a template does not fit this index (the reader has tried them all).
        """
        return self._source.act(self.index)

    @property
    def sentence(self) -> str:
        """For the report: what the entry says, or one made of the act."""
        return self._source.sentence(self.index)


class _Source:
    """An entry, ready to be repeated."""

    def __init__(self, entry: Entry, key: str, seed: int) -> None:
        self.entry = entry
        self._chance = KeyedRandom(seed, f"timeline/{entry.when.seed}/{key}")
        self._say = compiled(entry.say)
        self._drawn: tuple[str, ...] = ()
        self._shared: tuple[str, ...] = ()
        act = entry.act
        if isinstance(act, Submit):
            self._drawn = draws_of(act.work)
            self._shared = draws_of(act.work.share)
            self._texts = templates_of(act.work)
            self._copy = copier(act.work)
        elif isinstance(act, Apply):
            self._rendered = compiled([_renders(each.obj) for each in act.manifests])
        else:
            self._rendered = compiled(act)

    def moments(self) -> list[float]:
        """When it happens; at most one more often than a file may ask for."""
        self._chance.about("arrivals")
        found = list(islice(arrivals(self.entry.when, self._chance), SCENARIO_COUNT_MAX + 1))
        self._chance.forget("arrivals")
        return found

    def work(self, index: int) -> Workload:
        """The workload of this repeat; only of an entry that submits one."""
        act = self.entry.act
        assert isinstance(act, Submit)
        fields = {name: text(index) for name, text in self._texts.items()}
        for name in self._drawn:
            fields[name] = self._draw(act.work, name, index)
        if self._shared:
            share = fields.get("share", act.work.share)
            drawn = {name: self._draw(share, name, index) for name in self._shared}
            fields["share"] = attrs.evolve(share, **drawn)
        work: Workload = self._copy(fields)
        return work

    def _draw(self, thing: Workload | Share, name: str, index: int) -> Any:
        key = f"{index}/{name}"
        self._chance.about(key)
        value = getattr(thing, name).draw(self._chance)
        # A repeat is drawn whenever it is asked for, and must be the same each time.
        self._chance.forget(key)
        return value

    def act(self, index: int) -> Act:
        """What this repeat does."""
        act = self.entry.act
        if isinstance(act, Submit):
            objects = manifests_of(self.work(index))
            return Apply(tuple(Manifest(obj, self.entry.place) for obj in objects))
        made = self._rendered(index)
        if isinstance(act, Apply):
            pairs = zip(made, act.manifests, strict=True)
            return Apply(
                tuple(each if obj is None else Manifest(obj, each.place) for obj, each in pairs)
            )
        return cast("Act", made)

    def sentence(self, index: int) -> str:
        """What the report says of this repeat."""
        if self.entry.say:
            return str(self._say(index))
        if isinstance(self.entry.act, Submit):
            return acts_told.submitted(self.work(index))
        return acts_told.done(self.act(index))


def _renders(obj: Obj) -> Obj | None:
    """None for what holds templates of its own."""
    return None if obj.get("kind") == STAGE else obj


def moments(scenario: Scenario) -> tuple[Moment, ...]:
    """Everything that the timeline does, by time, then as it is written.

    What is drawn hangs by the scenario's seed, the entry's own and what the entry is about, so
    that one more entry shifts nothing in the others.
    """
    found: list[Moment] = []
    for number, source in enumerate(_sources(scenario)):
        found += [Moment(at, number, index, source) for index, at in enumerate(source.moments())]
    return tuple(sorted(found, key=lambda moment: (moment.at_s, moment.number, moment.index)))


def happenings(scenario: Scenario) -> Iterator[list[float]]:
    """When each entry of the timeline happens, one entry after another, in seconds."""
    return (source.moments() for source in _sources(scenario))


def _sources(scenario: Scenario) -> Iterator[_Source]:
    alike: Counter[str] = Counter()
    for entry in scenario.timeline:
        subject = subject_of(entry.act)
        yield _Source(entry, f"{subject}/{alike[subject]}", scenario.seed)
        alike[subject] += 1


_SUBJECTS: Final[Mapping[type[Any], str]] = {
    Delete: "Delete",
    Patch: "Patch",
    Scale: "Scale",
    Cordon: "Cordon",
    Drain: "Drain",
    FailNode: "FailNode",
    Evict: "Evict",
    Fault: "Fault",
    Restart: "Restart",
}
"""What draws are told apart by: never changed, as the same seed shall give the same moments."""


def subject_of(act: Act | Submit) -> str:
    """What an entry is about, as far as its draws are told apart by it."""
    if isinstance(act, Submit):
        return f"submit {act.work.namespace}/{act.work.name}"
    if isinstance(act, Apply):
        metadata = [each.obj.get("metadata") or {} for each in act.manifests[:1]]
        return f"apply {metadata[0].get('name') if metadata else ''}"
    return _SUBJECTS[type(act)]
