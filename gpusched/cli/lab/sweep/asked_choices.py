"""Whether there are jobs of the class, queue or kind by which a statistic is asked for, before anything is played."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from gpusched.base.errors import ConfigError
from gpusched.cli.lab.sweep.points import SweepPoint
from gpusched.cli.lab.sweep.sweep_inputs import Playable
from gpusched.engine.job_records import CLASS_LABEL
from gpusched.engine.objects import Obj
from gpusched.lab.report.statistics.asked import AskedStatistic
from gpusched.lab.scenario.model.scenario import Scenario
from gpusched.lab.simulate.variations import Variations, vary_arrivals

_QUEUE: Final = "gpusched.io/queue"
_CHOICES: Final = ("class", "queue", "kind")
_NAMED_MAX: Final = 20


def check_choices(
    points: Iterable[SweepPoint],
    asked: Iterable[AskedStatistic],
    load: Callable[[SweepPoint], Playable],
    place: str,
) -> None:
    """Look whether the jobs of some point are of what is asked for.

    Of a recorded cluster and of a scenario it is known only when they are played.

    Args:
        points: of one plan; no more of their inputs are read than it takes.
        asked: statistics.
        load: reads the input of a point.
        place: where they are asked for, for sentences.

    Raises:
        ConfigError: no job is of it, or an input cannot be read.
    """
    missing = [each for each in asked if each.key in _CHOICES]
    known: dict[str, set[str]] = {key: set() for key in _CHOICES}
    looked: set[tuple[str, int, bool]] = set()
    for point in points:
        if not missing:
            return
        changes = point.setting.changes
        what = (point.input.name, point.seed, changes.fifo)
        if what in looked:
            continue
        looked.add(what)
        found = _choices_of(load(point), changes)
        if found is None:
            return
        for key in _CHOICES:
            known[key] |= found[key]
        missing = [each for each in missing if not each.spelled_in(known[each.key])]
    if missing:
        first = missing[0]
        names = sorted(known[first.key])
        more = f" and {len(names) - _NAMED_MAX:,} more" if len(names) > _NAMED_MAX else ""
        raise ConfigError(
            f"{place}: {first.text}: no job is of {first.key} {first.value!r}, only of "
            f"{', '.join(names[:_NAMED_MAX]) or 'none'}{more}"
        )


def _choices_of(given: Playable, changes: Variations) -> Mapping[str, set[str]] | None:
    """Classes, queues and kinds of the jobs that come; None where others are there as well."""
    if isinstance(given, Scenario) or given.snapshot:
        return None
    found: dict[str, set[str]] = {key: set() for key in _CHOICES}
    for arrival in vary_arrivals(given.arrivals(), changes):
        for obj in arrival.objects:
            labels = obj["metadata"].get("labels") or {}
            found["class"].add(labels.get(CLASS_LABEL) or _class_without_label(obj))
            found["queue"].add(labels.get(_QUEUE) or "default")
            found["kind"].add(obj["kind"])
    return found


def _class_without_label(obj: Obj) -> str:
    spec = obj["spec"].get("template", obj).get("spec") or {}
    return spec.get("priorityClassName") or str(obj["kind"]).lower()
