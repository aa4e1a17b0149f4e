"""What a scenario's parts mean together: moments, names that exist, names that are made twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import attrs

from gpusched.base.classes import define
from gpusched.base.errors import ConfigError
from gpusched.base.limits import SCENARIO_COUNT_MAX, SCENARIO_MOMENTS_MAX
from gpusched.config.yaml_tree import did_you_mean, quoted
from gpusched.config.yaml_tree import list_names as listed
from gpusched.lab.scenario.expansion.moments import TimelineMoment, entry_times, unroll_timeline
from gpusched.lab.scenario.expansion.object_names import (
    UNCHECKED,
    WORKLOADS,
    WRITTEN,
    Deletions,
    NameReference,
    ObjectNames,
    built_in_kinds,
    mapping_or_empty,
    name_references,
    namespace_of,
    pattern_matches,
)
from gpusched.lab.scenario.expansion.templates import is_template
from gpusched.lab.scenario.expansion.workload_manifests import manifest_duration
from gpusched.lab.scenario.model.scenario import (
    Act,
    ApplyAct,
    CordonAct,
    Count,
    DeleteAct,
    DrainAct,
    EventSeen,
    EvictAct,
    Expectation,
    FailNodeAct,
    JobIs,
    Manifest,
    ObjectIs,
    PatchAct,
    ScaleAct,
    Scenario,
    SourceLocation,
    Statistic,
    SubmitAct,
    Target,
    TimelineEntry,
)

_NAMES_MAX: Final = 8
_STATISTICS_OF: Final = {"queue": "queue", "class": "class"}


def list_names(names: Sequence[str]) -> str:
    """Names for a sentence, not too many of them."""
    rest = len(names) - _NAMES_MAX
    return listed(names[:_NAMES_MAX]) + (f" and {rest} more" if rest > 0 else "")


class TargetLookup:
    """Tells of every target that nothing in the files is meant by."""

    def __init__(
        self, population: ObjectNames, refuse: Callable[[SourceLocation, str], None]
    ) -> None:
        self._population = population
        self._refuse = refuse
        self._kinds = sorted(built_in_kinds() | population.kinds)

    # -- acts ----------------------------------------------------------------------------------
    def act(self, entry: TimelineEntry) -> None:
        """What an entry of the timeline is done to."""
        match entry.act:
            case DeleteAct() | PatchAct() | ScaleAct() | EvictAct():
                self._target(entry.act.target, entry.place)
            case CordonAct() | DrainAct() | FailNodeAct():
                self._nodes(entry.act.target, entry.place)
            case _:
                pass

    def _target(self, target: Target, place: SourceLocation) -> None:
        if not self._kind(target, place) or target.kind not in WRITTEN:
            return
        if target.kind == "Node":
            self._nodes(target, place)
        elif _is_plain(target) and not self._population.has(target) and self._closed(target.kind):
            self._missing(target.kind, target.name, self._population.names(target.kind), place)

    def _closed(self, kind: str) -> bool:
        """Whether scenarios alone make such objects."""
        return kind in {"Queue", "Topology", "PriorityClass"} or not self._population.open

    def _kind(self, target: Target, place: SourceLocation) -> bool:
        if target.kind in self._kinds or target.api_version:
            return True
        self._refuse(
            place, f"there is no kind {quoted(target.kind)}{did_you_mean(target.kind, self._kinds)}"
        )
        return False

    def _nodes(self, target: Target, place: SourceLocation) -> None:
        if not _is_plain(target):
            return
        if target.name and not self._population.has(target):
            self._missing("Node", target.name, self._population.names("Node"), place)
        elif target.labels and not any(
            all(labels.get(key) == value for key, value in target.labels.items())
            for labels in self._population.node_labels
        ):
            told = ", ".join(f"{key}={value}" for key, value in target.labels.items())
            self._refuse(place, f"no node has the labels {told}")

    def _missing(self, kind: str, name: str, names: Sequence[str], place: SourceLocation) -> None:
        self._refuse(
            place,
            f"no {kind} {quoted(name)} is ever there: there are "
            f"{list_names(names)}{did_you_mean(name, names)}",
        )

    # -- expectations --------------------------------------------------------------------------
    def expectation(self, expectation: Expectation) -> None:
        """What an expectation is about."""
        place = expectation.place
        match expectation.subject:
            case JobIs():
                self._job(expectation.subject, place)
            case ObjectIs(target=target, exists=exists):
                if exists:
                    self._target(target, place)
                else:
                    self._kind(target, place)
            case Count(target=target):
                self._kind(target, place)
            case EventSeen(on=target):
                if target is not None:
                    self._target(target, place)
            case Statistic():
                self._statistic(expectation.subject, place)

    def _job(self, subject: JobIs, place: SourceLocation) -> None:
        population = self._population
        target = Target(kind=WORKLOADS[0], name=subject.job, namespace=subject.namespace)
        if not population.open and not population.has(target, WORKLOADS):
            names = [name for kind in WORKLOADS for name in population.names(kind)]
            self._missing("job", subject.job, names, place)
        if subject.within and subject.within not in population.levels:
            known = sorted(population.levels)
            self._refuse(
                place,
                f"there is no level of topology {quoted(subject.within)}: there are "
                f"{list_names(known)}{did_you_mean(subject.within, known)}",
            )
        if subject.on:
            self._nodes(Target(kind="Node", name=subject.on, namespace=""), place)

    def _statistic(self, subject: Statistic, place: SourceLocation) -> None:
        population = self._population
        for key, name in subject.of.items():
            if key == "queue":
                known = population.queues()
            elif key == "class":
                known = sorted({*population.classes, *population.priorities(), *_kind_words()})
            elif key == "kind":
                known = sorted({*WORKLOADS, *population.kinds})
            elif population.open:
                continue
            else:
                known = [each for kind in WORKLOADS for each in population.names(kind)]
            bare = name.rpartition("/")[2] if key == "job" else name
            if not any(pattern_matches(bare, each) for each in known):
                self._missing(key, name, known, place)


def _kind_words() -> tuple[str, ...]:
    """Jobs without a class and a priority go by their kind."""
    return tuple(kind.lower() for kind in WORKLOADS)


def _is_plain(target: Target) -> bool:
    """Whether its name is known without an index."""
    return not is_template(target.name) and not any(map(is_template, target.labels.values()))


def queue_rings(manifests: Sequence[Manifest]) -> Iterator[tuple[SourceLocation, tuple[str, ...]]]:
    """Each ring once: where its first queue by name stands, and names from it back to itself.

    Args:
        manifests: what is there from the beginning; a queue whose annotation says that it is
            unchecked closes no ring.
    """
    places: dict[str, SourceLocation] = {}
    parents: dict[str, str] = {}
    for manifest in manifests:
        metadata = mapping_or_empty(manifest.obj.get("metadata"))
        unchecked = mapping_or_empty(metadata.get("annotations")).get(UNCHECKED) == "true"
        parent = mapping_or_empty(manifest.obj.get("spec")).get("parent")
        if manifest.obj.get("kind") == "Queue" and parent and not unchecked:
            places[str(metadata.get("name"))] = manifest.place
            parents[str(metadata.get("name"))] = str(parent)
    for name in sorted(parents):
        ring = [name]
        while (above := parents.get(ring[-1])) is not None and above not in ring:
            ring.append(above)
        if above == name and name == min(ring):
            yield places[name], (*ring, name)


Refuse = Callable[[SourceLocation, str], None]
_UNCHECKED_HINT: Final = "; unchecked: true lets it be missing"


def check_scenario(scenario: Scenario, refuse: Refuse) -> None:
    """Look at the scenario as a whole.

    Args:
        scenario: whose files are right, each for itself.
        refuse: takes what is wrong with its place.
    """
    if not _bounded(scenario, refuse):
        return
    _check_spans(scenario, refuse)
    _CreationCheck(scenario, refuse).run()


# -- moments -----------------------------------------------------------------------------------
def _bounded(scenario: Scenario, refuse: Refuse) -> bool:
    """Whether the timeline is short enough to be unrolled, and each entry within the limit."""
    good = True
    total = 0
    for entry, times in zip(scenario.timeline, entry_times(scenario), strict=True):
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


def _check_end(scenario: Scenario, entry: TimelineEntry, end: float, refuse: Refuse) -> None:
    at = entry.when.at_s
    if scenario.ends_s is not None and at > scenario.ends_s:
        refuse(
            entry.place,
            f"is at {manifest_duration(at)}, after the scenario's end at {manifest_duration(scenario.ends_s)}",
        )
    elif end > scenario.limit_s:
        when = (
            f"is at {manifest_duration(at)}"
            if at > scenario.limit_s
            else f"goes on to {manifest_duration(end)}"
        )
        refuse(entry.place, f"{when}, beyond the limit of {manifest_duration(scenario.limit_s)}")


def _check_spans(scenario: Scenario, refuse: Refuse) -> None:
    ends = scenario.ends_s
    if ends is not None and ends > scenario.limit_s:
        refuse(
            scenario.place,
            f"ends at {manifest_duration(ends)}, beyond the limit of {manifest_duration(scenario.limit_s)}",
        )
    for each in scenario.expect:
        until = each.span.until_s
        if ends is not None and until > ends:
            refuse(
                each.place,
                f"is judged at {manifest_duration(until)}, after the scenario's end at {manifest_duration(ends)}",
            )
        elif until > scenario.limit_s:
            refuse(
                each.place,
                f"is judged at {manifest_duration(until)}, beyond the limit of {manifest_duration(scenario.limit_s)}",
            )


# -- names -------------------------------------------------------------------------------------
@define
class _CreationCheck:
    """Goes through everything that is made, in order of time, then looks names up."""

    _scenario: Scenario
    _refuse: Refuse
    _mentions: dict[NameReference, SourceLocation] = attrs.field(factory=dict)
    _deleted: Deletions = attrs.field(factory=Deletions)
    _told: set[int] = attrs.field(factory=set)

    def run(self) -> None:
        population = self._beginning()
        for moment in unroll_timeline(self._scenario):
            if moment.number not in self._told:
                self._moment(moment, population)
        self._look_up(population)
        lookup = TargetLookup(population, self._refuse)
        for entry in self._scenario.timeline:
            if not entry.unchecked:
                lookup.act(entry)
        for each in self._scenario.expect:
            if not each.unchecked:
                lookup.expectation(each)

    def _beginning(self) -> ObjectNames:
        found = ObjectNames()
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
        for reference in name_references(manifest.obj):
            self._mentions.setdefault(reference, manifest.place)

    def _moment(self, moment: TimelineMoment, population: ObjectNames) -> None:
        entry = self._scenario.timeline[moment.number]
        if isinstance(entry.act, DeleteAct):
            act = self._act(moment)
            if isinstance(act, DeleteAct):
                self._deleted.add(act)
        elif isinstance(entry.act, SubmitAct | ApplyAct):
            act = self._act(moment)
            if isinstance(act, ApplyAct):
                self._made(moment, act, population)
        elif moment.index == 0:
            self._act(moment)

    def _act(self, moment: TimelineMoment) -> Act | None:
        try:
            return moment.act
        except (ConfigError, ValueError) as error:
            self._wrong(moment, str(error))
        return None

    def _wrong(self, moment: TimelineMoment, what: str) -> None:
        self._told.add(moment.number)
        which = f"repeat {moment.index}: " if moment.index else ""
        self._refuse(moment.place, f"{which}{what}")

    def _made(self, moment: TimelineMoment, act: ApplyAct, population: ObjectNames) -> None:
        entry = self._scenario.timeline[moment.number]
        for manifest in act.manifests:
            first = population.add(manifest)
            if not entry.unchecked:
                self._mention(manifest)
            if first is None or not isinstance(entry.act, SubmitAct):
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

    def _look_up(self, population: ObjectNames) -> None:
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
                    f"{list_names(names)}{did_you_mean(reference.name, names)}{_UNCHECKED_HINT}",
                )


def _named(manifest: Manifest) -> str:
    obj = manifest.obj
    namespace, name = namespace_of(obj), obj["metadata"].get("name")
    place = f"{namespace}/" if namespace not in {"", "default"} else ""
    return f"{obj['kind']} {place}{name}"
