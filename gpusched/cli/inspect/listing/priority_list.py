"""``gpusched get priority``: where gangs that wait are in the order, and where that comes from, as ``sprio`` answers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import msgspec

from gpusched.base.errors import UsageError
from gpusched.cli.command import clean_cell
from gpusched.cli.inspect.listing.printed_listing import Listing
from gpusched.cli.inspect.listing.view_table import age_text
from gpusched.config.model import LeaderElectionConfig
from gpusched.io.client.api_client import ApiClient
from gpusched.io.serve.view_client import NoView, ViewClient, find_view
from gpusched.view.model import GangView, OrderTermView, PriorityView

_SINCE: Final = "since"
_LAST: Final = 2**31
_KIND_ENDS: Final = ("s", "es")

SORT_KEYS: Final[Mapping[str, Callable[[PriorityView], Any]]] = MappingProxyType(
    {
        "position": lambda _each: 0,
        "name": lambda each: (each.metadata.namespace, each.metadata.name),
        "queue": lambda each: (each.queue, each.order.queue_position or _LAST),
        "age": lambda each: _value_of(each, _SINCE) or "9999",
    }
)
"""How the order is sorted, by the word of the user; equal ones as their turns are."""


async def read_order(
    api: ApiClient, election: LeaderElectionConfig, namespace: str, about: tuple[str, str] | None
) -> list[PriorityView]:
    """Gangs that wait, in the order of their turns; of all namespaces where none is named.

    Args:
        api: of the cluster.
        election: names the Lease beside which the view is announced.
        namespace: of the gangs, empty for all.
        about: kind and name of the one gang that is asked about, or of what made it; None for all.

    Raises:
        NoView: no daemon tells it.
        UsageError: no such gang waits.
    """
    try:
        route = await find_view(api, namespace=election.lease_namespace, lease=election.lease_name)
        async with ViewClient(route) as client:
            found = await client.priority(namespace=namespace)
            if about is None:
                return found
            owned = await client.gangs(namespace=namespace)
    except NoView as error:
        raise NoView(f"the order of gangs is known to the daemon alone: {error}") from error
    return _select_priorities(found, about, owned, namespace)


def kind_and_name(words: Sequence[str]) -> tuple[str, str] | None:
    """``KIND NAME`` or ``KIND/NAME`` of a command line; None for nothing.

    Raises:
        UsageError: it is something else.
    """
    parts = words[0].split("/") if len(words) == 1 else list(words)
    if not words:
        return None
    if len(parts) != 2 or not all(parts):
        raise UsageError("priority is of all gangs that wait, or of one: KIND NAME, or KIND/NAME")
    return parts[0], parts[1]


def priority_listing(
    found: Sequence[PriorityView],
    now: float,
    *,
    sort_by: str,
    wide: bool,
    everywhere: bool,
    one: bool,
    resource: Callable[[str], str],
    empty: str,
    notes: tuple[str, ...] = (),
) -> Listing:
    """Gangs that wait in every form.

    Args:
        found: in the order of their turns.
        now: seconds since the epoch.
        sort_by: of ``SORT_KEYS``.
        wide: with what puts each behind the one before it.
        everywhere: with namespaces.
        one: whether one gang was asked about, so that its terms are told.
        resource: what ``-o name`` calls gangs of a kind.
        empty: the sentence where there is none.
        notes: what is to be known about it.
    """
    chosen = sorted(found, key=SORT_KEYS[sort_by])
    policies = _policies(chosen)
    titles = ["NAMESPACE"] if everywhere else []
    titles += ["NAME", "KIND", "QUEUE", "POSITION", "INQUEUE", *map(_title, policies)]
    titles += ["BY", "WHY"] if wide else []
    lines = []
    for each in chosen:
        order = each.order
        cells: list[Any] = [each.metadata.namespace] if everywhere else []
        cells += [each.metadata.name, each.gang_kind, each.queue]
        cells += [order.position or None, order.queue_position or None]
        cells += [_cell(policy, order.terms, now) for policy in policies]
        cells += [order.decided_by, order.message] if wide else []
        lines.append(tuple(clean_cell(cell) for cell in cells))
    return Listing(
        items=tuple(msgspec.to_builtins(each) for each in chosen),
        names=tuple(f"{resource(each.gang_kind)}/{each.metadata.name}" for each in chosen),
        header=tuple(titles),
        lines=tuple(lines),
        empty=empty,
        notes=notes,
        footer=tuple(line for each in chosen for line in order_sentences(each)) if one else (),
    )


def order_sentences(gang: PriorityView) -> list[str]:
    """Where one gang is, why, and each term by itself."""
    order, name = gang.order, f"{gang.gang_kind} {gang.metadata.namespace}/{gang.metadata.name}"
    lines = [clean_cell(f"{name} {order.message}.")]
    if order.position:
        place = f"It is {_position_text(order.position, order.total)} of all that wait in line"
        inside = f"{_position_text(order.queue_position, order.queue_total)} of queue {gang.queue}"
        lines = [clean_cell(f"{name} {order.message}."), clean_cell(f"{place}, {inside}.")]
    lines += [
        clean_cell(f"  {number}. {term.policy}: {term.message}")
        for number, term in enumerate(order.terms, 1)
    ]
    return lines


def with_keys(
    found: Sequence[PriorityView], keys: Collection[tuple[str, str, str]]
) -> list[PriorityView]:
    """Those with one of these namespaces, kinds and names."""
    return [each for each in found if _key(each) in keys]


def _select_priorities(
    found: Sequence[PriorityView],
    about: tuple[str, str],
    gangs: Sequence[GangView],
    namespace: str,
) -> list[PriorityView]:
    kind, name = about
    owned = {
        (gang.metadata.namespace, gang.gang_kind, gang.metadata.name)
        for gang in gangs
        if gang.owner is not None and _is_kind(gang.owner.kind, kind) and gang.owner.name == name
    }
    one = [
        each
        for each in found
        if (_is_kind(each.gang_kind, kind) and each.metadata.name == name) or _key(each) in owned
    ]
    if one:
        return one
    where = f" in namespace {namespace}" if namespace else ""
    raise UsageError(
        f"no gang {kind} {name} waits{where}, as far as this user may see: "
        "gpusched get jobs lists those that wait or run"
    )


def _is_kind(kind: str, word: str) -> bool:
    return word.lower() in {kind.lower(), *(f"{kind.lower()}{end}" for end in _KIND_ENDS)}


def _key(gang: PriorityView) -> tuple[str, str, str]:
    return gang.metadata.namespace, gang.gang_kind, gang.metadata.name


def _position_text(position: int, total: int) -> str:
    return f"{position} of {total}" if total else f"number {position}"


def _policies(gangs: Sequence[PriorityView]) -> list[str]:
    """Policies with a value of some gang, in the order in which they count."""
    found: dict[str, int] = {}
    for gang in gangs:
        for number, term in enumerate(gang.order.terms):
            if term.value:
                found[term.policy] = max(number, found.get(term.policy, 0))
    return sorted(found, key=lambda policy: (policy == _SINCE, found[policy], policy))


def _title(policy: str) -> str:
    return "".join(policy.split()).upper()


def _cell(policy: str, terms: Sequence[OrderTermView], now: float) -> str:
    """Values of a policy: those of one queue beside each other, the widest queue first."""
    levels: dict[str, list[str]] = {}
    for term in terms:
        if term.policy == policy and term.value:
            value = age_text(term.value, now) if policy == _SINCE else term.value
            levels.setdefault(term.queue, []).append(value)
    return " > ".join(" ".join(values) for values in levels.values())


def _value_of(gang: PriorityView, policy: str) -> str:
    return next((term.value for term in gang.order.terms if term.policy == policy), "")
