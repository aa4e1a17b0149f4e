"""Fault rules: which requests, which fault, when. One strict format for files and requests.

A rule is a mapping with ``match``, ``fault`` and ``when``; docs/devcluster.md lists every key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, Literal, cast

import attrs

from gpusched.base.classes import frozen
from gpusched.devcluster.apimachinery.limits import FAULT_DELAY_MAX_S, FAULT_RULES_MAX

FaultType = Literal["delay", "status", "lost", "drop", "stall", "lag", "expired", "truncate"]
READS: Final = ("get", "list", "watch")
VERBS: Final = (*READS, "create", "update", "patch", "delete", "deletecollection")
CODES: Final = {
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
"""HTTP codes that a rule can answer, and their reasons."""
APPLIES: Final[Mapping[str, frozenset[str]]] = {
    "drop": frozenset({"watch"}),
    "stall": frozenset({"watch"}),
    "lag": frozenset({"list", "watch"}),
    "expired": frozenset({"list", "watch"}),
    "truncate": frozenset(VERBS) - {"watch"},
}
"""Verbs that a fault can strike; those not named strike every request."""


class FaultRuleError(Exception):
    """A rule that cannot be used: where in it, and why."""

    def __init__(self, path: tuple[str | int, ...], why: str) -> None:
        self.path = path
        self.why = why
        super().__init__(f"{path_text(path)}: {why}" if path else why)


def path_text(path: tuple[str | int, ...]) -> str:
    """Write a path as people read it: ``rules[0].when.rate``."""
    text = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path)
    return text.removeprefix(".")


@frozen(kw_only=True)
class RequestFacts:
    """What a rule can ask about a request. ``resource`` reads ``jobs.batch/status``."""

    verb: str
    path: str
    resource: str = ""
    namespace: str = ""
    name: str = ""
    user: str = ""
    agent: str = ""


@frozen(kw_only=True)
class RequestMatch:
    """Which requests: each list that is not empty must hold one pattern that fits."""

    verbs: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()

    def fits(self, facts: RequestFacts) -> bool:
        """Tell whether a request is meant."""
        return (
            _one(self.verbs, facts.verb)
            and _one(self.resources, facts.resource)
            and _one(self.paths, facts.path)
            and _one(self.namespaces, facts.namespace)
            and _one(self.names, facts.name)
            and _one(self.users, facts.user)
            and _one(self.agents, facts.agent)
        )


def _one(patterns: tuple[str, ...], value: str) -> bool:
    return not patterns or any(fnmatchcase(value, pattern) for pattern in patterns)


@frozen(kw_only=True)
class FaultEffect:
    """What happens to a request; each type reads its own attributes.

    Attributes:
        seconds: of a delay, lowest and highest; of a lag, both the same.
        code, retry_after_s, message: of a status.
        applied: whether a lost answer is that of a request that took effect.
        after_events: events a watch still delivers before it drops or stalls.
        clean: whether a dropped watch ends as one that timed out, or breaks.
        versions: of a lag.
        bytes: of a body that are still sent.
    """

    type: FaultType
    seconds: tuple[float, float] = (0.0, 0.0)
    code: int = 0
    retry_after_s: int = 0
    message: str = ""
    applied: bool = False
    after_events: int = 0
    clean: bool = False
    versions: int = 0
    bytes: int = 0


@frozen(kw_only=True)
class FaultSchedule:
    """Which of the matching requests a rule strikes; all that is given must hold.

    Attributes:
        rate: share of them, drawn.
        nth: only this one, counted from 1.
        every: each request whose number it divides.
        first: only that many, from the first on.
        since, until: seconds of the cluster's clock after its start; until is excluded.
    """

    rate: float = 1.0
    nth: int = 0
    every: int = 0
    first: int = 0
    since: float = 0.0
    until: float = float("inf")


@frozen(kw_only=True)
class FaultRule:
    """One rule under its name."""

    name: str
    match: RequestMatch
    fault: FaultEffect
    when: FaultSchedule


Path = tuple[str | int, ...]


def parse_rules(value: Any, path: Path = ("rules",)) -> list[FaultRule]:
    """Read a list of rules; raises FaultRuleError."""
    if not isinstance(value, list):
        raise FaultRuleError(path, f"must be a list of rules, not {_kind(value)}")
    if len(value) > FAULT_RULES_MAX:
        raise FaultRuleError(path, f"holds {len(value)} rules; {FAULT_RULES_MAX} are the most")
    rules: list[FaultRule] = []
    for index, item in enumerate(value):
        rule = parse_rule(item, (*path, index), default_name=f"rule-{index + 1}")
        if any(rule.name == other.name for other in rules):
            raise FaultRuleError((*path, index, "name"), f"{rule.name!r} is given twice")
        rules.append(rule)
    return rules


def parse_rule(value: Any, path: Path = (), *, default_name: str) -> FaultRule:
    """Read one rule; raises FaultRuleError."""
    table = _table(value, path, ("name", "match", "fault", "when"))
    if "fault" not in table:
        raise FaultRuleError(path, "has no fault")
    rule = FaultRule(
        name=_text(table.get("name", default_name), (*path, "name")),
        match=_match(table.get("match", {}), (*path, "match")),
        fault=_fault(table["fault"], (*path, "fault")),
        when=_when(table.get("when", {}), (*path, "when")),
    )
    can = APPLIES.get(rule.fault.type)
    if can is not None and rule.match.verbs and not can & set(rule.match.verbs):
        known = ", ".join(v for v in VERBS if v in can)
        raise FaultRuleError((*path, "match", "verbs"), f"{rule.fault.type} strikes only {known}")
    return rule


def _match(value: Any, path: Path) -> RequestMatch:
    keys = tuple(a.name for a in attrs.fields(RequestMatch))
    table = _table(value, path, keys)
    match = RequestMatch(**{key: _texts(item, (*path, key)) for key, item in table.items()})
    for index, verb in enumerate(match.verbs):
        if verb not in VERBS:
            raise FaultRuleError((*path, "verbs", index), f"{verb!r} is none of {', '.join(VERBS)}")
    return match


def _when(value: Any, path: Path) -> FaultSchedule:
    table = _table(value, path, ("rate", "nth", "every", "first", "from", "until"))
    read: dict[str, Any] = {}
    for key, item in table.items():
        at = (*path, key)
        if key == "rate":
            read[key] = _number(item, at, 0, 1)
        elif key in {"from", "until"}:
            read["since" if key == "from" else key] = _number(item, at, 0, 1e9)
        else:
            read[key] = _checked_integer(item, at, 1, 10**9)
    when = FaultSchedule(**read)
    if when.until <= when.since:
        raise FaultRuleError((*path, "until"), f"must be above from, which is {when.since:g}")
    return when


def _fault(value: Any, path: Path) -> FaultEffect:
    if not isinstance(value, dict):
        raise FaultRuleError(path, f"must be a mapping, not {_kind(value)}")
    type_ = value.get("type")
    if not isinstance(type_, str) or type_ not in _FAULTS:
        where = (*path, "type") if "type" in value else path
        raise FaultRuleError(where, f"type must be one of {', '.join(_FAULTS)}")
    keys, read = _FAULTS[type_]
    table = _table(value, path, ("type", *keys))
    return read(cast("FaultType", type_), table, path)


def _delay(type_: FaultType, table: dict[str, Any], path: Path) -> FaultEffect:
    at = (*path, "seconds")
    value = _needed(table, "seconds", path)
    if isinstance(value, list):
        if len(value) != 2:
            raise FaultRuleError(at, "must be a number or a list of two")
        low, high = (_number(v, (*at, i), 0, FAULT_DELAY_MAX_S) for i, v in enumerate(value))
        if high < low:
            raise FaultRuleError(at, f"goes from {low:g} down to {high:g}")
        return FaultEffect(type=type_, seconds=(low, high))
    seconds = _number(value, at, 0, FAULT_DELAY_MAX_S)
    return FaultEffect(type=type_, seconds=(seconds, seconds))


def _status(type_: FaultType, table: dict[str, Any], path: Path) -> FaultEffect:
    code = _needed(table, "code", path)
    if isinstance(code, bool) or code not in CODES:
        known = ", ".join(map(str, CODES))
        raise FaultRuleError((*path, "code"), f"must be one of {known}")
    return FaultEffect(
        type=type_,
        code=code,
        retry_after_s=_checked_integer(table.get("retryAfter", 0), (*path, "retryAfter"), 0, 3600),
        message=_text(table.get("message", "a fault rule says so"), (*path, "message")),
    )


def _lost_answer(type_: FaultType, table: dict[str, Any], path: Path) -> FaultEffect:
    return FaultEffect(type=type_, applied=_flag(table.get("applied", False), (*path, "applied")))


def _cut_watch(type_: FaultType, table: dict[str, Any], path: Path) -> FaultEffect:
    return FaultEffect(
        type=type_,
        after_events=_checked_integer(
            table.get("afterEvents", 0), (*path, "afterEvents"), 0, 10**9
        ),
        clean=_flag(table.get("clean", False), (*path, "clean")),
    )


def _lag(type_: FaultType, table: dict[str, Any], path: Path) -> FaultEffect:
    if ("seconds" in table) == ("versions" in table):
        raise FaultRuleError(path, "needs either seconds or versions")
    if "versions" in table:
        versions = _checked_integer(table["versions"], (*path, "versions"), 1, 10**6)
        return FaultEffect(type=type_, versions=versions)
    seconds = _number(table["seconds"], (*path, "seconds"), 0, FAULT_DELAY_MAX_S)
    return FaultEffect(type=type_, seconds=(seconds, seconds))


def _expired(type_: FaultType, _table: dict[str, Any], _path: Path) -> FaultEffect:
    return FaultEffect(type=type_)


def _truncate(type_: FaultType, table: dict[str, Any], path: Path) -> FaultEffect:
    return FaultEffect(
        type=type_, bytes=_checked_integer(table.get("bytes", 1), (*path, "bytes"), 0, 2**30)
    )


_Read = Callable[[FaultType, dict[str, Any], Path], FaultEffect]
_FAULTS: Final[Mapping[str, tuple[Sequence[str], _Read]]] = {
    "delay": (("seconds",), _delay),
    "status": (("code", "retryAfter", "message"), _status),
    "lost": (("applied",), _lost_answer),
    "drop": (("afterEvents", "clean"), _cut_watch),
    "stall": (("afterEvents",), _cut_watch),
    "lag": (("seconds", "versions"), _lag),
    "expired": ((), _expired),
    "truncate": (("bytes",), _truncate),
}


def _needed(table: dict[str, Any], key: str, path: Path) -> Any:
    if key not in table:
        raise FaultRuleError(path, f"needs {key}")
    return table[key]


def _table(value: Any, path: Path, keys: Sequence[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise FaultRuleError(path, f"must be a mapping, not {_kind(value)}")
    for key in value:
        if key not in keys:
            known = ", ".join(keys) or "none"
            raise FaultRuleError((*path, str(key)), f"is no known key; known: {known}")
    return value


def _texts(value: Any, path: Path) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise FaultRuleError(path, f"must be a list of texts, not {_kind(value)}")
    return tuple(_text(item, (*path, index)) for index, item in enumerate(value))


def _text(value: Any, path: Path) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= 256:
        raise FaultRuleError(path, f"must be a text of 1 to 256 characters, not {_kind(value)}")
    return value


def _flag(value: Any, path: Path) -> bool:
    if not isinstance(value, bool):
        raise FaultRuleError(path, f"must be true or false, not {_kind(value)}")
    return value


def _number(value: Any, path: Path, low: float, high: float) -> float:
    # A comparison with NaN is false, so NaN is refused with everything else that is no number.
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise FaultRuleError(
            path, f"must be a number from {low:g} to {high:g}, not {value!r}"[:200]
        )
    return float(value)


def _checked_integer(value: Any, path: Path, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise FaultRuleError(
            path, f"must be a whole number from {low} to {high}, not {value!r}"[:200]
        )
    return value


def _kind(value: Any) -> str:
    if isinstance(value, str):
        return "a text" if value else "an empty text"
    names = {dict: "a mapping", list: "a list", bool: "a truth value", type(None): "nothing"}
    return names.get(type(value), "a number")
