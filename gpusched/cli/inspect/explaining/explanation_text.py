"""The story of a gang as text for a person: each sentence once, everything on one line that belongs together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any, Final

from gpusched.base.limits import EVICTIONS_RECORDED_MAX
from gpusched.cli.command import table
from gpusched.cli.inspect.devices.device_story import render_claims
from gpusched.cli.inspect.explaining.explanation import printable_line
from gpusched.cli.inspect.explaining.group_tree import render_tree
from gpusched.cli.inspect.explaining.place_in_order import describe_places

_MEMBERS_NAMED: Final = 3
_NODES_NAMED: Final = 8
_BUDGET_USED: Final = "BudgetExhausted"
_SUSPENDED: Final = "Suspended"
_WAITS: Final = "FailedScheduling"
_MOVES: Final = frozenset({"Preempted", "Reclaimed", "QueueStopped", "StaleGang", "BackOff"})
_SEE_WHY: Final = "(see why)"
_SEE_ABOVE: Final = "(see above)"
_MAY_BE_ASKED: Final = "is the daemon running, and is it the leader?"


def render_explanation(story: dict[str, Any]) -> str:
    """The story as text, for a person."""
    lines = [_headline(story)]
    facts = [("needs", need) for need in story["needs"]]
    facts.append(("has", _census(story["pods"])))
    if story["estimatedStartTime"]:
        facts.append(("starts", _start_text(story)))
        facts += [("moved", printable_line(why)) for why in story["estimateChanges"]]
    if story["turn"]:
        seconds, ended = story["turn"]["seconds"], story["turn"]["ended"]
        facts.append(
            (
                "turns",
                f"{seconds} s in all under maxRuntime; it waits anew since {ended}, the end of the last",
            )
        )
    facts += [("evicted", text) for text in _eviction_lines(story["evictions"])]
    facts += [("place", place) for place in describe_places(story["gangs"])]
    facts += [("held", held) for held in _promised_lines(story["promised"])]
    facts += [("on", place) for place in name_places(story["gangs"])]
    facts += [("until", text) for text in story["keptNodes"]]
    facts += [("places", proof) for proof in _proof_texts(story["proofs"])]
    reasons = [*_reasons(story), *filter(None, (story["refusedPods"],))]
    facts += [("why", why) for why in reasons]
    facts += [("leaving", why) for why in _grouped_reasons(story["leaving"])]
    notes = (printable_line(note) for note in (*story["unknownKeys"], *story["notes"]))
    facts += [("note", note) for note in notes if not any(note in each for each in reasons)]
    lines.append(table(facts, indent="  "))
    if story["tree"]:
        lines += ["", render_tree([_printable(row) for row in story["tree"]])]
    if story["conditions"]:
        header = ("CONDITION", "STATUS", "REASON", "SINCE", "MESSAGE")
        keys = ("type", "status", "reason", "age", "message")
        rows = [tuple(str(item[key]) for key in keys) for item in story["conditions"]]
        lines += ["", table([header, *(_once(row, reasons) for row in rows)])]
    if story["pendingPods"]:
        lines += [
            "",
            table(
                [
                    ("PENDING POD", "REASON", "MESSAGE"),
                    *(_once(row, reasons) for row in _grouped(story["pendingPods"])),
                ]
            ),
        ]
    if story["claims"]:
        lines += ["", render_claims(story["claims"])]
    decisions = [
        row
        for each in story["decisions"]
        if (row := _once((each["age"], each["event"], each["message"]), reasons))[-1] != _SEE_WHY
    ]
    if decisions:
        lines += ["", table([("AGE", "DECISION", "MESSAGE"), *decisions])]
    if story["events"]:
        header = ("AGE", "TYPE", "REASON", "OBJECT", "MESSAGE")
        above = [item["message"] for item in story["conditions"]]
        rows = [_once(row, reasons, above) for row in _events_told_once(story["events"])]
        lines += ["", table([header, *rows])]
    return "\n".join(lines)


def _once(
    row: tuple[str, ...], reasons: Sequence[str], above: Sequence[str] = ()
) -> tuple[str, ...]:
    """A row whose last cell is not told again where a reason, or what stands above, has said it."""
    message = row[-1]
    if not message:
        return row
    said = [each.partition(": ")[2] for each in reasons]
    if any(message in each for each in said) or any(
        each and message.endswith(f": {each}") for each in said
    ):
        return (*row[:-1], _SEE_WHY)
    return (*row[:-1], _SEE_ABOVE) if any(message in each for each in above) else row


def _events_told_once(events: Sequence[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    """One row for all events that say the same, at the place of the newest."""
    last: dict[tuple[str, ...], int] = {}
    for at, event in enumerate(events):
        last[_what_it_says(event)] = at
    for at, event in enumerate(events):
        says = _what_it_says(event)
        if last[says] != at:
            continue
        about = [each["object"] for each in events if _what_it_says(each) == says]
        owners = [each for each in dict.fromkeys(about) if not each.startswith("Pod/")]
        pods = [each for each in dict.fromkeys(about) if each.startswith("Pod/")]
        told = [*owners, *(pods if len(pods) < 2 else ["its pods"])]
        message = says[-1] if len(told) > 1 or len(pods) > 1 else str(event["message"])
        yield (str(event["age"]), *says[:2], " and ".join(told), message)


def _what_it_says(event: dict[str, Any]) -> tuple[str, ...]:
    """Type, reason and message of an event, without the name of what it is about."""
    kind, _, name = str(event["object"]).partition("/")
    message = str(event["message"])
    start, colon, rest = message.partition(": ")
    about = colon and start.startswith(f"{kind} ") and start.endswith(f"/{name}")
    return str(event["type"]), str(event["reason"]), rest if about else message


def _printable(row: dict[str, Any]) -> dict[str, Any]:
    """A group of a tree, its level without anything that a terminal would obey."""
    return {**row, "level": printable_line(row["level"])}


def _proof_texts(proofs: Sequence[dict[str, Any]]) -> list[str]:
    """One line for each proof, with the pods that it is about."""
    if not any(each["proof"] for each in proofs):
        return []
    texts = []
    for each in proofs:
        proof, count = each["proof"], each["pods"]
        pods = f"{count} pod{'s' if count != 1 else ''}"
        if not proof:
            texts.append(f"nothing proven of {pods}")
        else:
            texts.append(proof if " for " in proof else f"{proof} for {pods}")
    return texts


def name_places(gangs: Sequence[dict[str, Any]]) -> list[str]:
    """One line for each node that its pods are on, with their GPUs where these are known."""
    by_node: dict[str, list[dict[str, Any]]] = {}
    for gang in gangs:
        for member in gang["members"]:
            if member["node"]:
                by_node.setdefault(printable_line(member["node"]), []).append(member)
    lines = []
    for node in sorted(by_node)[:_NODES_NAMED]:
        members = by_node[node]
        slots = ", ".join(filter(None, (printable_line(each["slots"]) for each in members)))
        count = f"{len(members)} pod{'s' if len(members) != 1 else ''}"
        lines.append(f"{node}: {count}{f', GPUs {slots}' if slots else ''}")
    more = len(by_node) - _NODES_NAMED
    return [*lines, f"and {more} more nodes"] if more > 0 else lines


def _eviction_lines(past: Sequence[dict[str, Any]]) -> list[str]:
    """How often it was evicted and what that cost, then each time, the newest first."""
    if not past:
        return []
    lost = sum(each["gpuSeconds"] for each in past)
    times = "once" if len(past) == 1 else f"{len(past)} times"
    least = "at least " if len(past) >= EVICTIONS_RECORDED_MAX else ""
    lines = [f"{least}{times} since {past[0]['time']}, at the cost of {lost:,} GPU-seconds"]
    for each in reversed(past):
        whose = f"for {each['for']}" if each["for"] else f"({each['reason']})"
        lines.append(f"{each['age']} ago by {each['action']} {whose}")
    return lines


def _promised_lines(promised: Sequence[dict[str, str]]) -> list[str]:
    if not promised:
        return []
    nodes = sorted({each["node"] for each in promised})
    shown = ", ".join(nodes[:_MEMBERS_NAMED])
    more = len(nodes) - _MEMBERS_NAMED
    where = f"{shown} and {more} more" if more > 0 else shown
    count = len(promised)
    return [f"room for {count} pod{'s' if count != 1 else ''} on {where}, once it is free"]


def _grouped_reasons(leaving: Sequence[dict[str, str]]) -> list[str]:
    """One line a reason, with the number of pods."""
    counts = Counter(each["message"] for each in leaving)
    return [
        f"{count} pod{'s' if count != 1 else ''}: {message}"
        for message, count in sorted(counts.items())
    ]


def _headline(story: dict[str, Any]) -> str:
    line = (
        f"{story['kind']} {story['namespace']}/{story['name']}: {story['phase'] or 'not seen yet'}"
    )
    if story["queue"]:
        line += f" in queue {story['queue']}"
    if story["queuePosition"]:
        line += f", place {story['queuePosition']}"
    return line


def _census(counts: dict[str, int]) -> str:
    total = counts["total"]
    if not total:
        return "no pods yet"
    parts = [f"{count} {state}" for state, count in counts.items() if state != "total"]
    return f"{total} pod{'s' if total != 1 else ''}: {', '.join(parts)}"


def _start_text(story: dict[str, Any]) -> str:
    """The expected start, with its range where that is known; of a used budget only when it opens is known."""
    said = {each["reason"] for each in (*story["reasons"], *story["conditions"])}
    word = "not before" if _BUDGET_USED in said else "about"
    text = f"{word} {printable_line(story['estimatedStartTime'])}"
    earliest, latest = story["estimatedStartRange"]
    if latest:
        text += f", four of five between {printable_line(earliest)} and {printable_line(latest)}"
    return text


def _reasons(story: dict[str, Any]) -> list[str]:
    """The sentences of the view, and of what was taken away; else those of conditions, of the pods, or of events."""
    told = [
        f"{each['reason']}: {each['message']}"
        for each in story["reasons"]
        if each["reason"] != _SUSPENDED  # the daemon's own word is in events
    ]
    if story["phase"] in {"Running", "Completed"} and not told:
        return []
    refused = [
        f"{item['reason']}: {item['message']}"
        for item in story["conditions"]
        if (item["type"] in {"Admitted", "Scheduled"} and item["status"] == "False" and not told)
        or (item["type"] == "Preempted" and item["status"] == "True")
    ]
    if told or refused:
        return list(dict.fromkeys((*told[:_MEMBERS_NAMED], *refused)))
    said = [f"{pod['reason']}: {pod['message']}" for pod in story["pendingPods"] if pod["message"]]
    if said:
        return list(dict.fromkeys(said))[:_MEMBERS_NAMED]
    if story["phase"] == _SUSPENDED:
        return _last_said(story)
    if story["phase"] == "Failed" and story["kind"] == "Job":
        return [f"{item['reason']}: {item['message']}" for item in story["conditions"]
                if item["type"] == "Failed"]  # fmt: skip
    if story["schedulers"] and not set(story["schedulers"]) & set(story["servedSchedulers"]):
        return [_for_others(story["schedulers"], story["servedSchedulers"])]
    return _unsaid(story)


def _unsaid(story: dict[str, Any]) -> list[str]:
    """What can be told where nobody has said anything."""
    if story["kind"] == "Job" and story["phase"] == "Pending" and not story["pendingPods"]:
        return [_no_pods_of_job(story["failures"])]
    if story["pendingPods"] or not story["pods"]["total"]:
        unmade = f"{story['kind']} {story['name']} has no pods: its controller is to make them"
        return [_nothing_said(story) if story["needs"] else unmade]
    return []


def _no_pods_of_job(failures: int) -> str:
    """That it is for the Job controller to act: only pods that exist are scheduled."""
    text = "no pod of it waits or runs: kube-controller-manager makes its pods"
    if failures:
        times = "failure" if failures == 1 else "failures"
        text += (
            f", after {failures} {times} with a pause: 10 s, doubled by each, at most 10 minutes"
        )
    return text


def _nothing_said(story: dict[str, Any]) -> str:
    """That the daemon has written nothing, and whether there is one."""
    return f"nothing was said about it yet: {story['leader'] or _MAY_BE_ASKED}"


def _for_others(named: Sequence[str], served: Sequence[str]) -> str:
    """That pods name schedulers which are not served, and which one is most like them."""
    like = get_close_matches(named[0], served, n=1)
    meant = f"; did you mean {like[0]}?" if like else ""
    return (
        f"its pods are for {' and '.join(named)}, and {' and '.join(served)} is served here: "
        f"set schedulerName in the pod template{meant}"
    )


def _last_said(story: dict[str, Any]) -> list[str]:
    """Of a suspended Job: it has no pods, so the daemon's sentences are in its events alone."""
    if not story["queue"]:
        return [
            "it is suspended and names no queue: Jobs with the label gpusched.io/queue are started"
        ]
    told = [event for event in story["events"] if event["object"].startswith("Job/")]
    moves = [event for event in told if event["reason"] in _MOVES][-1:]
    waits = [event for event in told if event["reason"] == _WAITS][-1:]
    said = [f"{event['reason']}: {event['message']}" for event in (*waits, *moves)]
    return said or [_nothing_said(story)]


def _grouped(pods: Sequence[dict[str, str]]) -> Iterable[tuple[str, str, str]]:
    """One row for all pods of which the same is said."""
    names: dict[tuple[str, str], list[str]] = {}
    for pod in pods:
        names.setdefault((pod["reason"], pod["message"]), []).append(pod["name"])
    for (reason, message), members in names.items():
        shown = ", ".join(members[:_MEMBERS_NAMED])
        more = len(members) - _MEMBERS_NAMED
        names_shown = f"{shown} and {more} more" if more > 0 else shown
        yield (names_shown, reason or "-", message or "nothing said yet")
