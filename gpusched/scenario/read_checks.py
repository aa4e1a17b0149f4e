"""What a scenario's parts mean together: moments, names that exist, names that are made twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import attrs

from gpusched.config.tree import nearest, quoted
from gpusched.errors import ConfigError
from gpusched.limits import SCENARIO_COUNT_MAX, SCENARIO_MOMENTS_MAX
from gpusched.scenario.model import (
    Act,
    Apply,
    Delete,
    Entry,
    Manifest,
    Place,
    Scenario,
    Submit,
)
from gpusched.scenario.moments import Moment, happenings, moments
from gpusched.scenario.population import (
    UNCHECKED,
    Deletions,
    Population,
    Reference,
    namespace_of,
    references,
)
from gpusched.scenario.queue_rings import queue_rings
from gpusched.scenario.read_targets import Lookup, names_told
from gpusched.scenario.workloads import text_of

Refuse = Callable[[Place, str], None]
_UNCHECKED_HINT: Final = "; unchecked: true lets it be missing"


def check(scenario: Scenario, refuse: Refuse) -> None:
    """Look at the scenario as a whole.

    Args:
        scenario: whose files are right, each for itself.
        refuse: takes what is wrong with its place.
    """
    if not _bounded(scenario, refuse):
        return
    _check_spans(scenario, refuse)
    _Walk(scenario, refuse).run()


# -- moments -----------------------------------------------------------------------------------
def _bounded(scenario: Scenario, refuse: Refuse) -> bool:
    """Whether the timeline is short enough to be unrolled, and each entry within the limit."""
    good = True
    total = 0
    for entry, times in zip(scenario.timeline, happenings(scenario), strict=True):
        total += len(times)
        if len(times) > SCENARIO_COUNT_MAX:
            refuse(entry.place, f"happens more than {SCENARIO_COUNT_MAX} times")
            good = False
        elif total > SCENARIO_MOMENTS_MAX:
            refuse(entry.place, f"the timeline has more than {SCENARIO_MOMENTS_MAX} moments")
            return False
        else:
            _check_end(scenario, entry, max(times, default=0.0), refuse)
    return good


def _check_end(scenario: Scenario, entry: Entry, end: float, refuse: Refuse) -> None:
    at = entry.when.at_s
    if scenario.ends_s is not None and at > scenario.ends_s:
        refuse(
            entry.place,
            f"is at {text_of(at)}, after the scenario's end at {text_of(scenario.ends_s)}",
        )
    elif end > scenario.limit_s:
        when = f"is at {text_of(at)}" if at > scenario.limit_s else f"goes on to {text_of(end)}"
        refuse(entry.place, f"{when}, beyond the limit of {text_of(scenario.limit_s)}")


def _check_spans(scenario: Scenario, refuse: Refuse) -> None:
    ends = scenario.ends_s
    if ends is not None and ends > scenario.limit_s:
        refuse(
            scenario.place,
            f"ends at {text_of(ends)}, beyond the limit of {text_of(scenario.limit_s)}",
        )
    for each in scenario.expect:
        until = each.span.until_s
        if ends is not None and until > ends:
            refuse(
                each.place,
                f"is judged at {text_of(until)}, after the scenario's end at {text_of(ends)}",
            )
        elif until > scenario.limit_s:
            refuse(
                each.place,
                f"is judged at {text_of(until)}, beyond the limit of {text_of(scenario.limit_s)}",
            )


# -- names -------------------------------------------------------------------------------------
@attrs.define
class _Walk:
    """Goes through everything that is made, in order of time, then looks names up."""

    _scenario: Scenario
    _refuse: Refuse
    _mentions: dict[Reference, Place] = attrs.field(factory=dict)
    _deleted: Deletions = attrs.field(factory=Deletions)
    _told: set[int] = attrs.field(factory=set)

    def run(self) -> None:
        population = self._beginning()
        for moment in moments(self._scenario):
            if moment.number not in self._told:
                self._moment(moment, population)
        self._look_up(population)
        lookup = Lookup(population, self._refuse)
        for entry in self._scenario.timeline:
            if not entry.unchecked:
                lookup.act(entry)
        for each in self._scenario.expect:
            if not each.unchecked:
                lookup.expectation(each)

    def _beginning(self) -> Population:
        found = Population()
        for manifest in self._scenario.before:
            if (first := found.add(manifest)) is not None:
                self._refuse(manifest.place, f"{_named(manifest)} is there twice: see {first}")
            self._mention(manifest)
        for place, ring in queue_rings(self._scenario.before):
            self._refuse(
                place,
                f"queues are their own parents: {' < '.join(ring)}; leave parent out at one of "
                f'them, or annotate it {UNCHECKED}: "true" where that is meant',
            )
        return found

    def _mention(self, manifest: Manifest) -> None:
        for reference in references(manifest.obj):
            self._mentions.setdefault(reference, manifest.place)

    def _moment(self, moment: Moment, population: Population) -> None:
        entry = self._scenario.timeline[moment.number]
        if isinstance(entry.act, Delete):
            act = self._act(moment)
            if isinstance(act, Delete):
                self._deleted.add(act)
        elif isinstance(entry.act, Submit | Apply):
            act = self._act(moment)
            if isinstance(act, Apply):
                self._made(moment, act, population)
        elif moment.index == 0:
            self._act(moment)

    def _act(self, moment: Moment) -> Act | None:
        try:
            return moment.act
        except (ConfigError, ValueError) as error:
            self._wrong(moment, str(error))
        return None

    def _wrong(self, moment: Moment, what: str) -> None:
        self._told.add(moment.number)
        which = f"repeat {moment.index}: " if moment.index else ""
        self._refuse(moment.place, f"{which}{what}")

    def _made(self, moment: Moment, act: Apply, population: Population) -> None:
        entry = self._scenario.timeline[moment.number]
        for manifest in act.manifests:
            first = population.add(manifest)
            if not entry.unchecked:
                self._mention(manifest)
            if first is None or not isinstance(entry.act, Submit):
                continue
            obj = manifest.obj
            key = (obj["kind"], namespace_of(obj), str(obj["metadata"]["name"]))
            if not self._deleted.cover(key):
                self._told.add(moment.number)
                self._refuse(
                    entry.place,
                    f"makes {_named(manifest)} a second time: the first is made by {first}; "
                    "let its name hold {{ Index }}",
                )
                return

    def _look_up(self, population: Population) -> None:
        known: Mapping[str, tuple[str, list[str]]] = {
            "queue": ("queue", population.queues()),
            "priority": ("PriorityClass", population.priorities()),
            "level": ("level of topology", sorted(population.levels)),
        }
        for reference, place in self._mentions.items():
            word, names = known[reference.what]
            if reference.name not in names:
                self._refuse(
                    place,
                    f"there is no {word} {quoted(reference.name)}: there are "
                    f"{names_told(names)}{nearest(reference.name, names)}{_UNCHECKED_HINT}",
                )


def _named(manifest: Manifest) -> str:
    obj = manifest.obj
    namespace, name = namespace_of(obj), obj["metadata"].get("name")
    place = f"{namespace}/" if namespace not in {"", "default"} else ""
    return f"{obj['kind']} {place}{name}"
