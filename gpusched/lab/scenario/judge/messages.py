"""The sentence of an expectation where its author gave none."""

from __future__ import annotations

from gpusched.lab.report.statistics.named import StatisticValue, unit_of
from gpusched.lab.scenario.judge.comparison import WORDS, value_text
from gpusched.lab.scenario.model.scenario import (
    Comparator,
    Comparison,
    Count,
    EventSeen,
    JobIs,
    ObjectIs,
    Span,
    Statistic,
    Subject,
    Target,
)

_BE = {"complete": "is complete", "failed": "has failed", "started": "has started",
       "waiting": "waits", "running": "runs", "admitted": "is admitted",
       "suspended": "is suspended", "gone": "is gone"}  # fmt: skip
_HOUR_S, _MINUTE_S = 3600, 60


def expectation_message(subject: Subject, span: Span) -> str:
    """What is expected and when, such as ``train is complete by 2m``."""
    if isinstance(subject, JobIs):
        text = _job(subject)
    elif isinstance(subject, ObjectIs):
        text = _object(subject)
    elif isinstance(subject, Count):
        text = _count(subject)
    elif isinstance(subject, Statistic):
        named = f" of {_listed(dict(subject.of))}" if subject.of else ""
        text = f"{subject.name}{named} is {_figure(subject)}"
    else:
        text = _event(subject)
    return text + moment_message(span)


def moment_message(span: Span) -> str:
    """The moment or span, with a blank before it; empty for the end."""
    if span.kind == "at":
        return f" at {duration_text(span.until_s)}"
    if span.kind == "by":
        return f" by {duration_text(span.until_s)}"
    if span.kind == "during":
        return f" from {duration_text(span.since_s)} to {duration_text(span.until_s)}"
    return ""


def duration_text(seconds: float) -> str:
    """Seconds as Go writes them, to a tenth of a second: ``1m30s``, ``0s``, ``2h``."""
    tenths = round(seconds * 10)
    whole, rest = divmod(tenths, 10)
    hours, whole = divmod(whole, _HOUR_S)
    minutes, whole = divmod(whole, _MINUTE_S)
    text = f"{hours}h" if hours else ""
    text += f"{minutes}m" if minutes else ""
    if rest:
        return f"{text}{whole}.{rest}s"
    return f"{text}{whole}s" if whole or not text else text


def _job(subject: JobIs) -> str:
    parts = [_BE[subject.state]] if subject.state else []
    if subject.reason:
        parts = [f"{parts[0] if parts else 'waits'} because of {subject.reason}"]
    if subject.says:
        parts.append(f"says /{subject.says}/")
    if subject.pods is not None:
        parts.append(f"has {_value(subject.pods)} pods bound")
    if subject.within:
        parts.append(f"is within one {subject.within}")
    if subject.on:
        parts.append(f"is on {subject.on}")
    if subject.evicted is not None:
        parts.append(_evicted(subject.evicted))
    who = subject.job
    if subject.namespace != "default":
        who = f"{subject.namespace}/{who}"
    who = f"every {who}" if "*" in who else who
    return f"{who} {_and(parts) or 'is there'}"


def _evicted(comparison: Comparison) -> str:
    if comparison.test is Comparator.EQUALS and comparison.value == 0:
        return "is never evicted"
    return f"is evicted {_value(comparison)} times"


def _object(subject: ObjectIs) -> str:
    who = target_text(subject.target)
    if not subject.exists:
        return f"no {who} is there"
    parts = []
    if subject.condition:
        kind, _, status = subject.condition.partition("=")
        parts.append(f"has {kind} {status or 'True'}")
    if subject.reason:
        parts.append(f"with reason {subject.reason}")
    if subject.says:
        parts.append(f"says /{subject.says}/")
    if subject.path:
        value = "there" if subject.comparison is None else _value(subject.comparison)
        parts.append(f"has {subject.path} {value}")
    return f"{who} {_and(parts) or 'is there'}"


def _count(subject: Count) -> str:
    where = f" with {_listed(dict(subject.where))}" if subject.where else ""
    return f"there are {_value(subject.comparison)} {target_text(subject.target)}{where}"


def _event(subject: EventSeen) -> str:
    text = f"event {subject.reason}"
    if subject.on is not None:
        text += f" on {target_text(subject.on)}"
    if subject.says:
        text += f" that says /{subject.says}/"
    if subject.comparison is None:
        return f"{text} is seen"
    return f"{text} is seen {_value(subject.comparison)} times"


def target_text(said: Target) -> str:
    """A target in words: ``Pod team-a/train-*``, ``Job of any name``."""
    name = said.name or "*"
    text = f"{said.kind} {name}" if said.name else said.kind
    if said.namespace not in ("", "default") and said.name:
        text = f"{said.kind} {said.namespace}/{name}"
    elif said.namespace not in ("", "default", "*"):
        text += f" of {said.namespace}"
    return f"{text} with {_listed(dict(said.labels))}" if said.labels else text


def _value(comparison: Comparison) -> str:
    text = value_text(comparison.value)
    if comparison.test is Comparator.MATCHES:
        text = f"/{text}/"
    return WORDS[comparison.test] + text


def _figure(subject: Statistic) -> str:
    """With the unit of the statistic."""
    value = subject.comparison.value
    if isinstance(value, (bool, str)):
        return _value(subject.comparison)
    return f"{WORDS[subject.comparison.test]}{StatisticValue(float(value), unit_of(subject.name))}"


def _listed(pairs: dict[str, str]) -> str:
    return ", ".join(f"{key} {value}" for key, value in pairs.items())


def _and(parts: list[str]) -> str:
    if len(parts) <= 1:
        return "".join(parts)
    return f"{', '.join(parts[:-1])} and {parts[-1]}"
