"""What is there of each thing that can be expected, with a sentence of it: pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import attrs

from gpusched.report.record import Record
from gpusched.report.statistics import statistic
from gpusched.scenario import expect_workload as workload
from gpusched.scenario.comparing import AT_LEAST_ONE, holds, text_of
from gpusched.scenario.expect_index import Index, Workload, fits, is_pattern, regarding, said_in
from gpusched.scenario.expect_levels import domains, no_domain
from gpusched.scenario.json_paths import find, parse_path
from gpusched.scenario.model import (
    Count,
    EventSeen,
    JobIs,
    ObjectIs,
    Statistic,
    Subject,
)
from gpusched.scenario.sentences import target
from gpusched.scenario.slack import NOTED, nearest, tolerance

Obj = Mapping[str, Any]
_NAMED: Final = 3


@attrs.frozen
class Answer:
    """Whether it is so, and what was seen."""

    ok: bool
    seen: str


class Sight:
    """What one look sees: the objects now, and the record so far, made when it is asked for.

    Args:
        index: the objects.
        record: makes the record.
        slack_s: what statistics are allowed, see ``gpusched.scenario.slack``.
    """

    def __init__(self, index: Index, record: Callable[[], Record], *, slack_s: float = 0.0) -> None:
        self.index = index
        self.slack_s = slack_s
        self._make = record

    @cached_property
    def record(self) -> Record:
        """What happened so far; the same one for the whole look."""
        return self._make()


def answer(subject: Subject, sight: Sight) -> Answer:
    """Whether something is so now."""
    if isinstance(subject, JobIs):
        return _jobs(subject, sight)
    if isinstance(subject, ObjectIs):
        return _objects(subject, sight.index)
    if isinstance(subject, Count):
        return _count(subject, sight.index)
    if isinstance(subject, Statistic):
        return _statistic(subject, sight.record, sight.slack_s)
    return _events(subject, sight.index)


# -- jobs --------------------------------------------------------------------------------------
def _jobs(subject: JobIs, sight: Sight) -> Answer:
    found = sight.index.workloads_of(subject.namespace, subject.job)
    works = [work for work in found if workload.known(work)]
    if not works:
        what = "like" if is_pattern(subject.job) else "named"
        where = "" if subject.namespace == "default" else f" in namespace {subject.namespace}"
        return Answer(
            False, f"no Job, PodGroup, Deployment or Pod {what} {subject.job} ever appeared{where}"
        )
    wrong = [(work, why) for work in works if (why := _wrong_job(subject, work, sight))]
    if not wrong:
        shown = ", ".join(workload.told(work) for work in works[:_NAMED])
        more = f" and {len(works) - _NAMED} more" if len(works) > _NAMED else ""
        return Answer(True, shown + more)
    seen = wrong[0][1]
    if len(works) > 1:
        seen = f"{len(wrong)} of {len(works)} are not so; {seen}"
    return Answer(False, seen)


def _wrong_job(subject: JobIs, work: Workload, sight: Sight) -> str:
    """What is there instead; empty when it is as expected."""
    told = workload.told(work)
    if subject.state and subject.state not in workload.states(work):
        return told
    if subject.reason or subject.says:
        why = workload.reasons(work)
        if not any(_says(subject, each.reason, each.sentence) for each in why):
            return f"{told}; nothing is said of why it waits" if not why else told
    if subject.pods is not None and not holds(subject.pods, [len(workload.holding(work))]):
        return told
    if subject.on or subject.within:
        wrong = _wrong_place(subject, work, sight.index)
        if wrong:
            return f"{work.name} {wrong}"
    if subject.evicted is not None:
        key = f"{work.namespace}/{work.name}"
        times = sum(each.job == key for each in sight.record.evictions)
        if not holds(subject.evicted, [times]):
            return f"{work.name} was evicted {times} times{_last_eviction(sight.record, key)}"
    return ""


def _wrong_place(subject: JobIs, work: Workload, index: Index) -> str:
    nodes = workload.nodes(work)
    if not nodes:
        return "has no pod that is bound"
    if subject.on and not all(fits(subject.on, node) for node in nodes):
        return f"is on {_some(nodes)}"
    if subject.within:
        there = domains(subject.within, nodes, index)
        if len(there) != 1 or no_domain(there):
            return f"is in {len(there)} domains of {subject.within}: {_some(there)}"
    return ""


def _last_eviction(record: Record, key: str) -> str:
    mine = [each for each in record.evictions if each.job == key]
    return f", last because of {mine[-1].why}: {mine[-1].sentence}" if mine else ""


def _says(subject: JobIs | ObjectIs, reason: str, sentence: str) -> bool:
    if subject.reason and subject.reason != reason:
        return False
    return not subject.says or re.search(subject.says, sentence) is not None


# -- objects -----------------------------------------------------------------------------------
def _objects(subject: ObjectIs, index: Index) -> Answer:
    found = index.matching(subject.target)
    who = target(subject.target)
    if not subject.exists:
        names = [str(obj["metadata"]["name"]) for obj in found]
        return Answer(not found, f"{who}: {_some(names)} is there" if found else f"no {who}")
    if not found:
        went = index.seen(subject.target)
        return Answer(False, f"no {who} is there any more" if went else f"no {who} ever appeared")
    for obj in found:
        wrong = _wrong_object(subject, obj)
        if wrong:
            return Answer(False, f"{obj['kind']} {obj['metadata']['name']} {wrong}")
    first = found[0]["metadata"]["name"]
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return Answer(True, f"{subject.target.kind} {first}{more} {_shown(subject, found[0])}")


def _wrong_object(subject: ObjectIs, obj: Obj) -> str:
    if subject.condition or subject.reason or subject.says:
        wrong = _wrong_condition(subject, obj)
        if wrong:
            return wrong
    if not subject.path:
        return ""
    values = find(obj, parse_path(subject.path))
    if subject.comparison is None:
        return "" if values else f"has nothing at {subject.path}"
    if holds(subject.comparison, values):
        return ""
    return _has(subject.path, values)


def _wrong_condition(subject: ObjectIs, obj: Obj) -> str:
    kind, _, status = subject.condition.partition("=")
    there = (obj.get("status") or {}).get("conditions") or ()
    named = [each for each in there if not kind or each.get("type") == kind]
    if not named:
        types = [str(each.get("type")) for each in there]
        return f"has no condition {kind}" + (f", only {_some(types)}" if types else "")
    for each in named:
        good = not kind or each.get("status") == (status or "True")
        if good and _says(subject, each.get("reason", ""), each.get("message", "")):
            return ""
    each = named[0]
    text = f"has {each.get('type')}={each.get('status')}"
    if each.get("reason") or each.get("message"):
        text += f", {workload.Why(each.get('reason', ''), each.get('message', ''))}"
    return text


def _shown(subject: ObjectIs, obj: Obj) -> str:
    if subject.path:
        return _has(subject.path, find(obj, parse_path(subject.path)))
    return f"has {subject.condition}" if subject.condition else "is there"


def _has(path: str, values: Sequence[Any]) -> str:
    if not values:
        return f"has nothing at {path}"
    return f"has {path} {_some([text_of(value) for value in values])}"


def _count(subject: Count, index: Index) -> Answer:
    found = index.matching(subject.target)
    for path, text in subject.where.items():
        steps = parse_path(path)
        found = [
            obj for obj in found if any(fits(text, text_of(value)) for value in find(obj, steps))
        ]
    seen = f"there are {len(found)}"
    if not found and not index.seen(subject.target):
        seen = f"no {target(subject.target)} ever appeared"
    elif found:
        seen += f": {_some([str(obj['metadata']['name']) for obj in found])}"
    return Answer(holds(subject.comparison, [len(found)]), seen)


# -- the rest ----------------------------------------------------------------------------------
def _statistic(subject: Statistic, record: Record, slack_s: float) -> Answer:
    figure = statistic(record, subject.name, of=subject.of)
    seen = f"it is {figure}"
    if figure.value is None:
        return Answer(False, seen)
    if holds(subject.comparison, [figure.value]):
        return Answer(True, seen)
    off = tolerance(record, subject.name, subject.of, slack_s)
    near = holds(subject.comparison, [nearest(subject.comparison, figure.value, off)])
    return Answer(near, f"{seen}, {NOTED}" if near else seen)


def _events(subject: EventSeen, index: Index) -> Answer:
    times = 0
    other: list[str] = []
    for event in index.objects.get("Event", {}).values():
        if event.get("reason") != subject.reason or not _about(subject, event):
            continue
        text = said_in(event)
        if subject.says and re.search(subject.says, text) is None:
            other.append(text)
            continue
        times += _times(event)
    seen = f"it was seen {times} times"
    if not times:
        seen = f"it never appeared{f'; such events said: {other[-1]}' if other else ''}"
    return Answer(holds(subject.comparison or AT_LEAST_ONE, [times]), seen)


def _about(subject: EventSeen, event: Obj) -> bool:
    on = subject.on
    if on is None:
        return True
    about = regarding(event)
    space = about.get("namespace", "")
    return (
        about.get("kind") == on.kind
        and fits(on.name, about.get("name", ""))
        and (not space or fits(on.namespace, space))
    )


def _times(event: Obj) -> int:
    series = event.get("series") or {}
    return int(series.get("count") or event.get("count") or event.get("deprecatedCount") or 1)


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else ""
    return ", ".join(listed[:_NAMED]) + more
