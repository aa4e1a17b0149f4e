"""What is there of each thing that can be expected, with a sentence of it: pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

from gpusched.base.classes import frozen
from gpusched.engine.run_record import RunRecord
from gpusched.lab.report.statistics.named import statistic
from gpusched.lab.scenario.judge import workload_state as workload
from gpusched.lab.scenario.judge.comparison import AT_LEAST_ONE, comparison_holds, value_text
from gpusched.lab.scenario.judge.json_path import parse_path, values_at_path
from gpusched.lab.scenario.judge.messages import target_text
from gpusched.lab.scenario.judge.object_index import (
    ObjectIndex,
    WorkloadObjects,
    event_message,
    event_subject,
    is_pattern,
    name_matches,
)
from gpusched.lab.scenario.judge.tolerance import NOTED, nearest_value, statistic_tolerance
from gpusched.lab.scenario.model.scenario import (
    Count,
    EventSeen,
    JobIs,
    ObjectIs,
    Statistic,
    Subject,
)
from gpusched.topology.levels import DEFAULT_NAME, HOST, WELL_KNOWN

NODE: Final = "node"
NO_DOMAIN: Final = "(no domain)"


def domains_of_nodes(level: str, nodes: Sequence[str], index: ObjectIndex) -> list[str]:
    """Paths of the domains that nodes are in, each once; ``NONE`` for nodes without one.

    Args:
        level: ``node``, the name of a level, or a label of nodes.
        nodes: by name.
        index: where Node and Topology objects are.
    """
    if level in (NODE, "host"):
        return sorted(set(nodes))
    labels = _labels(level, index)
    there = index.objects.get("Node", {})
    found = set()
    for name in nodes:
        mine: dict[str, Any] = dict(there.get(("", name), {}).get("metadata", {}).get("labels", {}))
        mine.setdefault(HOST, name)
        path = [_first(mine, choice) for choice in labels]
        found.add(NO_DOMAIN if None in path else "/".join(str(part) for part in path))
    return sorted(found)


def lacks_domain(paths: Sequence[str]) -> bool:
    """Whether a node among them has none."""
    return NO_DOMAIN in paths


def _labels(level: str, index: ObjectIndex) -> list[tuple[str, ...]]:
    """Labels that must agree, widest first; several where any of them may mark the level."""
    known = index.objects.get("Topology", {})
    chosen = known.get(("", DEFAULT_NAME)) or (known[min(known)] if known else None)
    if chosen is not None:
        levels = [(each["name"], each["nodeLabel"]) for each in chosen["spec"].get("levels", ())]
        for place, (name, label) in enumerate(levels):
            if level in (name, label):
                return [(each,) for _, each in levels[: place + 1]]
    there = {
        key
        for node in index.objects.get("Node", {}).values()
        for key in node["metadata"].get("labels", {})
    }
    wider: list[tuple[str, ...]] = []
    for name, marks in WELL_KNOWN:
        if level == name or level in marks:
            return [*wider, marks if level == name else (level,)]
        if not there.isdisjoint(marks):
            wider.append(marks)
    return [(level,)]


def _first(labels: dict[str, Any], choice: tuple[str, ...]) -> Any:
    return next((labels[each] for each in choice if each in labels), None)


Obj = Mapping[str, Any]
_NAMED: Final = 3


@frozen
class Observation:
    """Whether it is so, and what was seen."""

    ok: bool
    seen: str


class ClusterView:
    """What one look sees: the objects now, and the record so far, made when it is asked for.

    Args:
        index: the objects.
        record: makes the record.
        slack_s: what statistics are allowed, see ``gpusched.lab.scenario.judge.tolerance``.
    """

    def __init__(
        self, index: ObjectIndex, record: Callable[[], RunRecord], *, slack_s: float = 0.0
    ) -> None:
        self.index = index
        self.slack_s = slack_s
        self._make = record

    @cached_property
    def record(self) -> RunRecord:
        """What happened so far; the same one for the whole look."""
        return self._make()


def observe_subject(subject: Subject, sight: ClusterView) -> Observation:
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
def _jobs(subject: JobIs, sight: ClusterView) -> Observation:
    found = sight.index.workloads_of(subject.namespace, subject.job)
    works = [work for work in found if workload.was_seen(work)]
    if not works:
        what = "like" if is_pattern(subject.job) else "named"
        where = "" if subject.namespace == "default" else f" in namespace {subject.namespace}"
        return Observation(
            False, f"no Job, PodGroup, Deployment or Pod {what} {subject.job} ever appeared{where}"
        )
    wrong = [(work, why) for work in works if (why := _wrong_job(subject, work, sight))]
    if not wrong:
        shown = ", ".join(workload.workload_message(work) for work in works[:_NAMED])
        more = f" and {len(works) - _NAMED} more" if len(works) > _NAMED else ""
        return Observation(True, shown + more)
    seen = wrong[0][1]
    if len(works) > 1:
        seen = f"{len(wrong)} of {len(works)} are not so; {seen}"
    return Observation(False, seen)


def _wrong_job(subject: JobIs, work: WorkloadObjects, sight: ClusterView) -> str:
    """What is there instead; empty when it is as expected."""
    told = workload.workload_message(work)
    if subject.state and subject.state not in workload.workload_states(work):
        return told
    if subject.reason or subject.says:
        why = workload.wait_reasons(work)
        if not any(_says(subject, each.reason, each.sentence) for each in why):
            return f"{told}; nothing is said of why it waits" if not why else told
    if subject.pods is not None and not comparison_holds(
        subject.pods, [len(workload.bound_pods(work))]
    ):
        return told
    if subject.on or subject.within:
        wrong = _wrong_place(subject, work, sight.index)
        if wrong:
            return f"{work.name} {wrong}"
    if subject.evicted is not None:
        key = f"{work.namespace}/{work.name}"
        times = sum(each.job == key for each in sight.record.evictions)
        if not comparison_holds(subject.evicted, [times]):
            return f"{work.name} was evicted {times} times{_last_eviction(sight.record, key)}"
    return ""


def _wrong_place(subject: JobIs, work: WorkloadObjects, index: ObjectIndex) -> str:
    nodes = workload.nodes_of_workload(work)
    if not nodes:
        return "has no pod that is bound"
    if subject.on and not all(name_matches(subject.on, node) for node in nodes):
        return f"is on {_some(nodes)}"
    if subject.within:
        there = domains_of_nodes(subject.within, nodes, index)
        if len(there) != 1 or lacks_domain(there):
            return f"is in {len(there)} domains of {subject.within}: {_some(there)}"
    return ""


def _last_eviction(record: RunRecord, key: str) -> str:
    mine = [each for each in record.evictions if each.job == key]
    return f", last because of {mine[-1].why}: {mine[-1].sentence}" if mine else ""


def _says(subject: JobIs | ObjectIs, reason: str, sentence: str) -> bool:
    if subject.reason and subject.reason != reason:
        return False
    return not subject.says or re.search(subject.says, sentence) is not None


# -- objects -----------------------------------------------------------------------------------
def _objects(subject: ObjectIs, index: ObjectIndex) -> Observation:
    found = index.matching(subject.target)
    who = target_text(subject.target)
    if not subject.exists:
        names = [str(obj["metadata"]["name"]) for obj in found]
        return Observation(not found, f"{who}: {_some(names)} is there" if found else f"no {who}")
    if not found:
        went = index.seen(subject.target)
        return Observation(
            False, f"no {who} is there any more" if went else f"no {who} ever appeared"
        )
    for obj in found:
        wrong = _wrong_object(subject, obj)
        if wrong:
            return Observation(False, f"{obj['kind']} {obj['metadata']['name']} {wrong}")
    first = found[0]["metadata"]["name"]
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return Observation(
        True, f"{subject.target.kind} {first}{more} {_object_state_text(subject, found[0])}"
    )


def _wrong_object(subject: ObjectIs, obj: Obj) -> str:
    if subject.condition or subject.reason or subject.says:
        wrong = _wrong_condition(subject, obj)
        if wrong:
            return wrong
    if not subject.path:
        return ""
    values = values_at_path(obj, parse_path(subject.path))
    if subject.comparison is None:
        return "" if values else f"has nothing at {subject.path}"
    if comparison_holds(subject.comparison, values):
        return ""
    return _values_text(subject.path, values)


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
        text += f", {workload.WaitExplanation(each.get('reason', ''), each.get('message', ''))}"
    return text


def _object_state_text(subject: ObjectIs, obj: Obj) -> str:
    if subject.path:
        return _values_text(subject.path, values_at_path(obj, parse_path(subject.path)))
    return f"has {subject.condition}" if subject.condition else "is there"


def _values_text(path: str, values: Sequence[Any]) -> str:
    if not values:
        return f"has nothing at {path}"
    return f"has {path} {_some([value_text(value) for value in values])}"


def _count(subject: Count, index: ObjectIndex) -> Observation:
    found = index.matching(subject.target)
    for path, text in subject.where.items():
        steps = parse_path(path)
        found = [
            obj
            for obj in found
            if any(name_matches(text, value_text(value)) for value in values_at_path(obj, steps))
        ]
    seen = f"there are {len(found)}"
    if not found and not index.seen(subject.target):
        seen = f"no {target_text(subject.target)} ever appeared"
    elif found:
        seen += f": {_some([str(obj['metadata']['name']) for obj in found])}"
    return Observation(comparison_holds(subject.comparison, [len(found)]), seen)


# -- the rest ----------------------------------------------------------------------------------
def _statistic(subject: Statistic, record: RunRecord, slack_s: float) -> Observation:
    figure = statistic(record, subject.name, of=subject.of)
    seen = f"it is {figure}"
    if figure.value is None:
        return Observation(False, seen)
    if comparison_holds(subject.comparison, [figure.value]):
        return Observation(True, seen)
    off = statistic_tolerance(record, subject.name, subject.of, slack_s)
    near = comparison_holds(
        subject.comparison, [nearest_value(subject.comparison, figure.value, off)]
    )
    return Observation(near, f"{seen}, {NOTED}" if near else seen)


def _events(subject: EventSeen, index: ObjectIndex) -> Observation:
    times = 0
    other: list[str] = []
    for event in index.objects.get("Event", {}).values():
        if event.get("reason") != subject.reason or not _is_about_object(subject, event):
            continue
        text = event_message(event)
        if subject.says and re.search(subject.says, text) is None:
            other.append(text)
            continue
        times += _times(event)
    seen = f"it was seen {times} times"
    if not times:
        seen = f"it never appeared{f'; such events said: {other[-1]}' if other else ''}"
    return Observation(comparison_holds(subject.comparison or AT_LEAST_ONE, [times]), seen)


def _is_about_object(subject: EventSeen, event: Obj) -> bool:
    on = subject.on
    if on is None:
        return True
    about = event_subject(event)
    space = about.get("namespace", "")
    return (
        about.get("kind") == on.kind
        and name_matches(on.name, about.get("name", ""))
        and (not space or name_matches(on.namespace, space))
    )


def _times(event: Obj) -> int:
    series = event.get("series") or {}
    return int(series.get("count") or event.get("count") or event.get("deprecatedCount") or 1)


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else ""
    return ", ".join(listed[:_NAMED]) + more
