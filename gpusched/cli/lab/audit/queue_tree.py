"""I5 of the queues themselves: each has its parent, and parents promise no more than they have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from gpusched.testing.invariants.model import Finding, Obj, base_amounts

_ROOT: Final = "root"


def queue_tree_findings(queues: Sequence[Obj]) -> Iterator[Finding]:
    """Parents that are missing, cycles, and children that were promised more than their parent."""
    by_name = {str(each["metadata"]["name"]): each for each in queues}
    children: dict[str, list[str]] = {}
    for name, queue in sorted(by_name.items()):
        parent = queue["spec"].get("parent") or _ROOT
        children.setdefault(parent, []).append(name)
        if parent != _ROOT and parent not in by_name:
            yield _queue_finding(name, f"the parent {parent} of queue {name} does not exist")
        elif ring := _ring(name, by_name):
            yield _queue_finding(name, f"queue {name} is its own ancestor: {' -> '.join(ring)}")
    for parent, names in sorted(children.items()):
        if parent in by_name:
            yield from _promises(by_name[parent], [by_name[each] for each in names])


def _ring(name: str, queues: Mapping[str, Obj]) -> list[str]:
    """The way from a queue back to itself; empty where there is none."""
    way, here = [name], queues[name]["spec"].get("parent") or _ROOT
    while here in queues and here not in way:
        way.append(here)
        here = queues[here]["spec"].get("parent") or _ROOT
    return [*way, name] if here == name else []


def _promises(parent: Obj, children: Sequence[Obj]) -> Iterator[Finding]:
    """What is guaranteed to children together is at most what their parent deserves."""
    name = str(parent["metadata"]["name"])
    has = base_amounts(parent["spec"].get("deserved"))
    given: Counter[str] = Counter()
    for child in children:
        given.update(base_amounts((child["spec"].get("guarantee") or {}).get("resource")))
    for resource, amount in sorted(given.items()):
        if resource in has and amount > has[resource]:
            yield _queue_finding(
                name,
                f"queue {name} deserves {has[resource]} {resource}, and its {len(children)} "
                f"children are guaranteed {amount}",
            )


def _queue_finding(name: str, sentence: str) -> Finding:
    return Finding(invariant="I5", kind="Queue", name=name, sentence=sentence)
