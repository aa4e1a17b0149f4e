"""A timeline unrolled: every moment at which something is done, and what, drawn and rendered."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, islice, repeat
from typing import Any, Final, cast

import attrs

from gpusched.base.classes import frozen
from gpusched.base.limits import SCENARIO_COUNT_MAX
from gpusched.devcluster.apimachinery.seeded_random import KeyedRandom
from gpusched.lab.scenario.expansion import act_messages
from gpusched.lab.scenario.expansion.templates import compile_value, copy_function, templates_of
from gpusched.lab.scenario.expansion.workload_manifests import manifests_of
from gpusched.lab.scenario.model.scenario import (
    Act,
    ApplyAct,
    ArrivalProcess,
    CordonAct,
    DeleteAct,
    DrainAct,
    EntryTimes,
    EvictAct,
    FailNodeAct,
    FaultAct,
    Manifest,
    Obj,
    PatchAct,
    RestartAct,
    ScaleAct,
    Scenario,
    SourceLocation,
    SubmitAct,
    TimelineEntry,
)
from gpusched.lab.scenario.model.workload import GpuRequest, WorkloadSpec, drawn_attributes

HOUR_S: Final = 3600.0
DAY_S: Final = 24 * HOUR_S
_DIGITS: Final = 3
"""Moments are whole milliseconds."""


def arrival_times(when: EntryTimes, chance: random.Random) -> Iterator[float]:
    """The moments of an entry in seconds, in order, the first at ``at_s``.

    Args:
        when: ends by its ``count`` or its ``until_s``.
        chance: seeded for this entry alone.
    """
    if not when.every_s:
        return iter((when.at_s,) * (when.count or 1))
    return _repeats(when, chance)


def _repeats(when: EntryTimes, chance: random.Random) -> Iterator[float]:
    busy = _DayRhythm(when.day) if when.day else None
    start = busy.work(when.at_s) if busy else when.at_s
    gone = 0.0
    gaps = _gaps(when, chance)
    number = 0
    while when.count is None or number < when.count:
        at = when.at_s
        if number:
            gone += next(gaps)
            at = busy.moment(start + gone) if busy else start + gone
        at = round(at, _DIGITS)
        if when.until_s is not None and at > when.until_s:
            return
        yield at
        number += 1


def _gaps(when: EntryTimes, chance: random.Random) -> Iterator[float]:
    mean = when.every_s
    match when.process:
        case ArrivalProcess.FIXED:
            yield from repeat(mean)
        case ArrivalProcess.POISSON:
            while True:
                yield chance.expovariate(1 / mean)
        case ArrivalProcess.UNIFORM:
            while True:
                yield chance.uniform(0, 2 * mean)


class _DayRhythm:
    """Turns time into work done at the day's pace, and back; both grow together."""

    def __init__(self, hours: Sequence[float]) -> None:
        mean = math.fsum(hours) / len(hours)
        self._rates = [hour / mean for hour in hours]
        self._before = [0.0, *accumulate(rate * HOUR_S for rate in self._rates)]

    def work(self, at: float) -> float:
        """Work that is done at a moment: as many seconds as in an even day, over whole days."""
        days, rest = divmod(at, DAY_S)
        hour = int(rest // HOUR_S)
        return days * DAY_S + self._before[hour] + self._rates[hour] * (rest - hour * HOUR_S)

    def moment(self, work: float) -> float:
        """The first moment at which so much work is done."""
        days, rest = divmod(work, DAY_S)
        for hour, rate in enumerate(self._rates):
            if rate and rest <= self._before[hour + 1]:
                return days * DAY_S + hour * HOUR_S + (rest - self._before[hour]) / rate
        return (days + 1) * DAY_S


STAGE: Final = "Stage"
"""A kind whose templates are its own."""


@frozen
class TimelineMoment:
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
    _source: _EntrySource = attrs.field(eq=False, repr=False)

    @property
    def place(self) -> SourceLocation:
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


class _EntrySource:
    """An entry, ready to be repeated."""

    def __init__(self, entry: TimelineEntry, key: str, seed: int) -> None:
        self.entry = entry
        self._chance = KeyedRandom(seed, f"timeline/{entry.when.seed}/{key}")
        self._say = compile_value(entry.say)
        self._drawn: tuple[str, ...] = ()
        self._shared: tuple[str, ...] = ()
        act = entry.act
        if isinstance(act, SubmitAct):
            self._drawn = drawn_attributes(act.work)
            self._shared = drawn_attributes(act.work.share)
            self._texts = templates_of(act.work)
            self._copy = copy_function(act.work)
        elif isinstance(act, ApplyAct):
            self._rendered = compile_value([_renders(each.obj) for each in act.manifests])
        else:
            self._rendered = compile_value(act)

    def moments(self) -> list[float]:
        """When it happens; at most one more often than a file may ask for."""
        self._chance.about("arrivals")
        found = list(islice(arrival_times(self.entry.when, self._chance), SCENARIO_COUNT_MAX + 1))
        self._chance.forget("arrivals")
        return found

    def work(self, index: int) -> WorkloadSpec:
        """The workload of this repeat; only of an entry that submits one."""
        act = self.entry.act
        assert isinstance(act, SubmitAct)
        fields = {name: text(index) for name, text in self._texts.items()}
        for name in self._drawn:
            fields[name] = self._draw(act.work, name, index)
        if self._shared:
            share = fields.get("share", act.work.share)
            drawn = {name: self._draw(share, name, index) for name in self._shared}
            fields["share"] = attrs.evolve(share, **drawn)
        work: WorkloadSpec = self._copy(fields)
        return work

    def _draw(self, thing: WorkloadSpec | GpuRequest, name: str, index: int) -> Any:
        key = f"{index}/{name}"
        self._chance.about(key)
        value = getattr(thing, name).draw(self._chance)
        # A repeat is drawn whenever it is asked for, and must be the same each time.
        self._chance.forget(key)
        return value

    def act(self, index: int) -> Act:
        """What this repeat does."""
        act = self.entry.act
        if isinstance(act, SubmitAct):
            objects = manifests_of(self.work(index))
            return ApplyAct(tuple(Manifest(obj, self.entry.place) for obj in objects))
        made = self._rendered(index)
        if isinstance(act, ApplyAct):
            pairs = zip(made, act.manifests, strict=True)
            return ApplyAct(
                tuple(each if obj is None else Manifest(obj, each.place) for obj, each in pairs)
            )
        return cast("Act", made)

    def sentence(self, index: int) -> str:
        """What the report says of this repeat."""
        if self.entry.say:
            return str(self._say(index))
        if isinstance(self.entry.act, SubmitAct):
            return act_messages.submission_message(self.work(index))
        return act_messages.act_message(self.act(index))


def _renders(obj: Obj) -> Obj | None:
    """None for what holds templates of its own."""
    return None if obj.get("kind") == STAGE else obj


def unroll_timeline(scenario: Scenario) -> tuple[TimelineMoment, ...]:
    """Everything that the timeline does, by time, then as it is written.

    What is drawn hangs by the scenario's seed, the entry's own and what the entry is about, so
    that one more entry shifts nothing in the others.
    """
    found: list[TimelineMoment] = []
    for number, source in enumerate(_sources(scenario)):
        found += [
            TimelineMoment(at, number, index, source) for index, at in enumerate(source.moments())
        ]
    return tuple(sorted(found, key=lambda moment: (moment.at_s, moment.number, moment.index)))


def entry_times(scenario: Scenario) -> Iterator[list[float]]:
    """When each entry of the timeline happens, one entry after another, in seconds."""
    return (source.moments() for source in _sources(scenario))


def _sources(scenario: Scenario) -> Iterator[_EntrySource]:
    alike: Counter[str] = Counter()
    for entry in scenario.timeline:
        subject = draw_key(entry.act)
        yield _EntrySource(entry, f"{subject}/{alike[subject]}", scenario.seed)
        alike[subject] += 1


_SUBJECTS: Final[Mapping[type[Any], str]] = {
    DeleteAct: "Delete",
    PatchAct: "Patch",
    ScaleAct: "Scale",
    CordonAct: "Cordon",
    DrainAct: "Drain",
    FailNodeAct: "FailNode",
    EvictAct: "Evict",
    FaultAct: "Fault",
    RestartAct: "Restart",
}
"""What draws are told apart by: never changed, as the same seed shall give the same moments."""


def draw_key(act: Act | SubmitAct) -> str:
    """What an entry is about, as far as its draws are told apart by it."""
    if isinstance(act, SubmitAct):
        return f"submit {act.work.namespace}/{act.work.name}"
    if isinstance(act, ApplyAct):
        metadata = [each.obj.get("metadata") or {} for each in act.manifests[:1]]
        return f"apply {metadata[0].get('name') if metadata else ''}"
    return _SUBJECTS[type(act)]
