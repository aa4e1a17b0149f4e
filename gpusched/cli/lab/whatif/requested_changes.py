"""The options of ``gpusched what-if`` that are changes, in the order in which they were typed."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, Final

import attrs

from gpusched.base.errors import UsageError
from gpusched.lab.whatif.change_plan import ChangeRequest

CHANGES: Final = {
    "--drain": ("NODES", "empty nodes and keep them so: names, LABEL=VALUE, or a domain such as rack=r7"),
    "--lose": ("NODES", "nodes vanish with their pods"),
    "--add-nodes": ("COUNT:like=NODE", "more nodes like one that there is, such as 4:like=gpu-0:rack=r9"),
    "--gpu-type": ("NODES=PRODUCT", "nodes have GPUs of another type, such as rack=r7=NVIDIA-H200"),
    "--set": (
        "KIND/NAME.FIELD=VALUE",
        "a field of queue/NAME or podgroup/NS/NAME, such as queue/research.deserved=128 (GPUs)",
    ),
}  # fmt: skip
"""Options that are changes: what stands behind them, and what they do."""
_MOMENTS: Final = {
    "--from": ("TIME", "when a --drain begins: 22:00, 22:00Z, +2h, 2026-11-28T22:00:00Z (now)"),
    "--for": ("DURATION", "how long a --drain lasts, such as 2h (for good)"),
    "--at": ("TIME", "when any other change happens (now)"),
}


class _CollectInOrder(argparse.Action):
    """Keeps an option and its words in one list with all others of its kind."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        del parser, option_string  # the option may be an abbreviation
        words = values if isinstance(values, str) else " ".join(map(str, values or ()))
        namespace.changes = [*(namespace.changes or ()), (self.option_strings[0], words)]


def add_change_options(parser: argparse.ArgumentParser) -> None:
    """The options that are changes, and those that say when each happens."""
    group = parser.add_argument_group(
        "changes", "each may be repeated; --from, --for and --at belong to the change before them"
    )
    for option, (metavar, text) in {**CHANGES, **_MOMENTS}.items():
        group.add_argument(
            option, action=_CollectInOrder, dest="changes", metavar=metavar, help=text,
            nargs="+" if option == "--add-nodes" else None,
        )  # fmt: skip


def collect_requests(typed: Sequence[tuple[str, str]]) -> list[ChangeRequest]:
    """The changes, each with its moment.

    Args:
        typed: options and their words, in order; a moment before the first change belongs to the first.

    Raises:
        UsageError: a moment that belongs to no change, or twice to one.
    """
    requests: list[ChangeRequest] = []
    early: list[tuple[str, str]] = []
    for option, words in typed:
        if option in CHANGES:
            requests.append(ChangeRequest(option=option, words=words))
            for each in early:
                requests[-1] = _with_moment(requests[-1], *each)
            early = []
        elif requests:
            requests[-1] = _with_moment(requests[-1], option, words)
        else:
            early.append((option, words))
    if early:
        raise UsageError(
            f"{early[0][0]} {early[0][1]}: of which change? Name one, such as --drain rack=r7"
        )
    return requests


def _with_moment(request: ChangeRequest, option: str, words: str) -> ChangeRequest:
    drains = request.option == "--drain"
    if drains != (option in ("--from", "--for")):
        fits = "--from and --for" if drains else "--at"
        raise UsageError(f"{option} {words}: a {request.option} takes {fits}")
    if request.span if option == "--for" else request.since:
        raise UsageError(f"{option} is said twice of {request.option} {request.words}")
    if option == "--for":
        return attrs.evolve(request, span=words)
    return attrs.evolve(request, since=words)
