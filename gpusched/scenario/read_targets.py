"""Whether there is ever anything that an act or an expectation speaks of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from gpusched.config.tree import listed, nearest, quoted
from gpusched.scenario.model import (
    Cordon,
    Count,
    Delete,
    Drain,
    Entry,
    EventSeen,
    Evict,
    Expectation,
    FailNode,
    JobIs,
    ObjectIs,
    Patch,
    Place,
    Scale,
    Statistic,
    Target,
)
from gpusched.scenario.population import (
    WORKLOADS,
    WRITTEN,
    Population,
    built_in_kinds,
    fits,
)
from gpusched.scenario.templates import is_template

_NAMES_MAX: Final = 8
_STATISTICS_OF: Final = {"queue": "queue", "class": "class"}


def names_told(names: Sequence[str]) -> str:
    """Names for a sentence, not too many of them."""
    rest = len(names) - _NAMES_MAX
    return listed(names[:_NAMES_MAX]) + (f" and {rest} more" if rest > 0 else "")


class Lookup:
    """Tells of every target that nothing in the files is meant by."""

    def __init__(self, population: Population, refuse: Callable[[Place, str], None]) -> None:
        self._population = population
        self._refuse = refuse
        self._kinds = sorted(built_in_kinds() | population.kinds)

    # -- acts ----------------------------------------------------------------------------------
    def act(self, entry: Entry) -> None:
        """What an entry of the timeline is done to."""
        match entry.act:
            case Delete() | Patch() | Scale() | Evict():
                self._target(entry.act.target, entry.place)
            case Cordon() | Drain() | FailNode():
                self._nodes(entry.act.target, entry.place)
            case _:
                pass

    def _target(self, target: Target, place: Place) -> None:
        if not self._kind(target, place) or target.kind not in WRITTEN:
            return
        if target.kind == "Node":
            self._nodes(target, place)
        elif _is_plain(target) and not self._population.has(target) and self._closed(target.kind):
            self._missing(target.kind, target.name, self._population.names(target.kind), place)

    def _closed(self, kind: str) -> bool:
        """Whether nobody else makes such objects."""
        return kind in {"Queue", "Topology", "PriorityClass"} or not self._population.open

    def _kind(self, target: Target, place: Place) -> bool:
        if target.kind in self._kinds or target.api_version:
            return True
        self._refuse(
            place, f"there is no kind {quoted(target.kind)}{nearest(target.kind, self._kinds)}"
        )
        return False

    def _nodes(self, target: Target, place: Place) -> None:
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

    def _missing(self, kind: str, name: str, names: Sequence[str], place: Place) -> None:
        self._refuse(
            place,
            f"no {kind} {quoted(name)} is ever there: there are "
            f"{names_told(names)}{nearest(name, names)}",
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

    def _job(self, subject: JobIs, place: Place) -> None:
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
                f"{names_told(known)}{nearest(subject.within, known)}",
            )
        if subject.on:
            self._nodes(Target(kind="Node", name=subject.on, namespace=""), place)

    def _statistic(self, subject: Statistic, place: Place) -> None:
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
            if not any(fits(bare, each) for each in known):
                self._missing(key, name, known, place)


def _kind_words() -> tuple[str, ...]:
    """Jobs without a class and a priority go by their kind."""
    return tuple(kind.lower() for kind in WORKLOADS)


def _is_plain(target: Target) -> bool:
    """Whether its name is known without an index."""
    return not is_template(target.name) and not any(map(is_template, target.labels.values()))
