"""Read cases from text: one block of lines each, one line for each thing.

::

    case an over-quota queue gives back what another deserves
      because the smaller loss is taken
      node n0 2g ; n1 2g cpu=8000m mem=64G pods=20 rack=r1
      levels zone rack
      queue team ; a under=team des=1g cap=2g w=1 prio=5 guar=1g locked
      gang old  a 1g @n0*2 min=1 p50 -> 1 @n0 evicted 1
      gang new  b 2g x1           -> 1
      runs old new = 2
      evictions old = 1
      after 90s
      once
      off blackbox: not carried out yet

* A gang: its name, queue, amount of each pod (``2g``, ``500m``, ``4G`` joined by ``+``), then
  words: ``@n0*2`` bound pods, ``x3`` waiting ones, ``!n0`` bound ones that are being deleted,
  ``~2`` gated ones, each with ``/sub`` for a sub-group, ``:p75`` for a priority of its own and
  ``:2g`` for an amount of its own, ``:never`` for one that
  never preempts, ``:slow`` for one that is a minute in going; ``min=``, ``p75``, ``hard`` or ``soft``, ``sub=a:2,b:1``,
  ``subreq=LEVEL`` of each sub-group, ``minsub=``, ``on=n0,n1``, ``apart``, ``never``, ``rack=r1`` (any other ``key=value``: node
  selector), ``required=``, ``preferred=``, ``minrun=30s``, ``keep=1`` (a PodDisruptionBudget).
* After the arrow: how many run (``2``, ``0..1``), where (``@n0`` all there, ``@n0,n1`` nowhere
  else, ``@n0*1+n1*2`` exactly so, ``@rack`` all in one), and ``evicted 1``. Unless told, as many
  are evicted as ran and run no more.
* amounts: ``0.5g`` is a share of a GPU, ``50Mg`` MiB of one, ``2x1g.10gb`` MIG slices; ``@n0^1`` is bound to slot 1 of n0;
  ``onegpu A B``: these gangs lie on one GPU, ``twogpus A B``: on different ones.
* ``moves``: the action ``consolidate`` runs too. ``once``: what is evicted is not made again. ``n0..n3`` stands for several nodes.

What happens later, which only the whole daemon plays:

* words of a gang: ``at=30s`` when it comes, ``for=60s`` how long it runs, ``walltime=90s``,
  ``maxwait=300s`` for its preferred level, ``timeout=60s``, ``checkpoint=60s``, ``whole``,
  ``roles=ps:1,worker:2`` (then ``/ps`` is a role), ``ranked``; of a queue: ``maxwait=``, ``maxrun=``;
* ``at 30s VERB ...``: ``node n5 8g`` comes, ``lose n1`` with its pods, ``ungate NAME``, ``kill NAME 2``
  pods that fail, ``min NAME 6``, ``queue a stop=Hold``, ``restart`` of the daemon;
* ``by 45s NAME = 2``: so many run then; ``says NAME: words`` and ``reason NAME: Reason`` in the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tests.behaviour.notation.gang_line import parse_gang as gang_of
from tests.behaviour.notation.model import (
    Amount,
    Case,
    CaseNode,
    CaseQueue,
    Check,
    Event,
    Told,
    Total,
)
from tests.behaviour.notation.numbers import (
    InvalidCase,
    amount,
    amounts,
    between,
    seconds,
    series,
)

PLAYERS: Final = ("session", "blackbox")
_PLENTY_CPU: Final = 20_000
_PLENTY_MEMORY: Final = 20 * 10**9
_ELSEWHERE: Final = "nowhere"
"""Name of a queue that need not exist."""
_QUEUE_TIMES: Final = {
    "minrun": "min_runtime_s",
    "maxrun": "max_runtime_s",
    "maxwait": "max_wait_s",
}


def load_cases(path: Path) -> list[Case]:
    """The cases of a file; its name without the ending is their family.

    Raises:
        BadCase: a line is not understood; says which.
    """
    return parse_cases(path.read_text(), family=path.stem)


def parse_cases(text: str, *, family: str) -> list[Case]:
    """The cases of a text.

    Raises:
        BadCase: a line is not understood; says which.
    """
    cases: list[Case] = []
    for lines in _blocks(text):
        number, first = lines[0]
        made: dict[str, Any] = {"name": first, "nodes": [], "queues": [], "gangs": []}
        made |= {"totals": [], "off": {}, "events": [], "checks": [], "told": []}
        for number, line in lines[1:]:
            try:
                _line(made, line)
            except (ValueError, KeyError, IndexError) as error:
                raise InvalidCase(f"{family}:{number}: {line!r}: {error}") from error
        for key in ("nodes", "queues", "gangs", "totals", "events", "checks", "told"):
            made[key] = tuple(made[key])
        _check(made, where=f"{family}:{number}")
        cases.append(Case(family=family, **made))
    names = [case.name for case in cases]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidCase(f"{family}: two cases have the name {twice[0]!r}")
    return cases


def _blocks(text: str) -> Iterator[list[tuple[int, str]]]:
    block: list[tuple[int, str]] = []
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.partition("#")[0].strip()
        if not line:
            continue
        if line.startswith("case "):
            if block:
                yield block
            block = [(number, line.removeprefix("case ").strip())]
        elif block:
            block.append((number, line))
        else:
            raise InvalidCase(f"line {number}: {line!r} stands before the first case")
    if block:
        yield block


def _check(made: Mapping[str, Any], *, where: str) -> None:
    queues = {queue.name for queue in made["queues"]}
    nodes = {node.name for node in made["nodes"]}
    for gang in made["gangs"]:
        if gang.queue not in queues and gang.queue != _ELSEWHERE:
            raise InvalidCase(f"{where}: gang {gang.name} names queue {gang.queue}")
        for pods in gang.pods:
            if pods.node and pods.node not in nodes:
                raise InvalidCase(f"{where}: gang {gang.name} names node {pods.node}")


def _line(made: dict[str, Any], line: str) -> None:
    word, _, rest = line.partition(" ")
    rest = rest.strip()
    if word == "node":
        for each in rest.split(";"):
            made["nodes"] += _nodes(each.split())
    elif word == "queue":
        made["queues"] += [_queue(each.split()) for each in rest.split(";")]
    elif word == "gang":
        made["gangs"].append(gang_of(rest))
    elif word in {"runs", "evictions", "done"}:
        names, _, count = rest.partition("=")
        total = Total(what=word, gangs=tuple(names.split()), count=between(count.strip()))
        made["totals"].append(total)
    else:
        _about(made, word, rest)


def _about(made: dict[str, Any], word: str, rest: str) -> None:
    """What is said of the case as a whole."""
    if word == "levels":
        made["levels"] = tuple(rest.split())
    elif word == "after":
        made["seconds"] = seconds(rest)
    elif word == "once":
        made["again"] = False
    elif word == "moves":
        made["moves"] = True
    elif word in {"at", "by"}:
        _later(made, word, rest)
    elif word in {"onegpu", "twogpus"}:
        key = "one_gpu" if word == "onegpu" else "two_gpus"
        made[key] = (*made.get(key, ()), tuple(rest.split()))
    elif word in {"says", "reason"}:
        gang, _, text = rest.partition(":")
        made["told"].append(Told(gang=gang, text=text.strip(), is_reason=word == "reason"))
    elif word == "because":
        made["because"] = f"{made.get('because', '')} {rest}".strip()
    elif word == "off":
        player, _, why = rest.partition(":")
        for each in PLAYERS if player == "both" else (player,):
            if each not in PLAYERS or not why.strip():
                raise InvalidCase("off PLAYER: why")
            made["off"][each] = why.strip()
    else:
        raise InvalidCase("no such word")


def _later(made: dict[str, Any], word: str, rest: str) -> None:
    """``by 45s NAME = 2``, or an event."""
    second, _, rest = rest.partition(" ")
    at_s = seconds(second)
    if word == "by":
        gang, _, count = rest.partition("=")
        made["checks"].append(Check(at_s=at_s, gang=gang.strip(), runs=between(count.strip())))
        return
    verb, *words = rest.split()
    fields: dict[str, Any] = {}
    if verb == "node":
        fields["nodes"] = tuple(_nodes(words))
    elif verb == "queue":
        fields["queue"] = _queue(words)
    elif verb in {"lose", "ungate", "kill", "min"}:
        fields |= {"name": words[0], "count": int(words[1]) if len(words) > 1 else 1}
    elif verb != "restart":
        raise InvalidCase(f"no such event {verb!r}")
    made["events"].append(Event(at_s=at_s, verb=verb, **fields))


def _nodes(words: list[str]) -> Iterator[CaseNode]:
    offers = {"cpu": _PLENTY_CPU, "memory": _PLENTY_MEMORY, "gpus": 0}
    labels: dict[str, str] = {}
    pods = 110
    for word in words[1:]:
        key, _, value = word.partition("=")
        if not value:
            more = amounts(word)
            if "pieces" in more:
                more["pieces"] = (*offers.get("pieces", ()), *more["pieces"])
            offers |= more
        elif key == "pods":
            pods = int(value)
        elif key in {"cpu", "mem"}:
            offers |= amounts(value)
        else:
            labels[key] = value
    for name in series(words[0]):
        yield CaseNode(name=name, offers=Amount(**offers), labels=labels, pods=pods)


def _queue(words: list[str]) -> CaseQueue:
    fields: dict[str, Any] = {}
    amounts = {"des": "deserved", "cap": "capability", "guar": "guarantee"}
    for word in words[1:]:
        key, _, value = word.partition("=")
        if key in amounts:
            fields[amounts[key]] = amount(value)
        elif key in {"w", "prio"}:
            fields["weight" if key == "w" else "priority"] = int(value)
        elif key == "under":
            fields["parent"] = value
        elif key in {"ordering", "stop"}:
            fields[key] = value
        elif key in _QUEUE_TIMES:
            fields[_QUEUE_TIMES[key]] = seconds(value)
        elif word == "locked":
            fields["reclaimable"] = False
        else:
            raise InvalidCase(f"{word!r} of a queue")
    return CaseQueue(name=words[0], **fields)
