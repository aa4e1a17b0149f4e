"""Which Stage an object enters and after how long: pure, given the object, now and randomness."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from gpusched.base.classes import frozen
from gpusched.devcluster.stages.expressions import ExpressionInput
from gpusched.devcluster.stages.model import (
    CelTest,
    EqualTest,
    JqTest,
    KwokStage,
    StageExpression,
    Test,
)
from gpusched.devcluster.stages.read_cache import ReadCache, is_pure
from gpusched.devcluster.stages.typed_objects import is_typed

_UNITS: Final = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}
_PART: Final = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)")


@frozen
class StageChoice:
    """A Stage that was picked, and the seconds until it is played (may be negative: at once)."""

    stage: KwokStage
    delay_s: float


def go_duration(text: str) -> float | None:
    """Seconds of a Go duration such as ``1h30m`` or ``-1.5s``; None when it is none."""
    sign = -1.0 if text.startswith("-") else 1.0
    body = text[1:] if text[:1] in {"-", "+"} else text
    if body == "0":
        return 0.0
    parts = list(_PART.finditer(body))
    if not parts or "".join(part[0] for part in parts) != body:
        return None
    return sign * sum(float(part[1]) * _UNITS[part[2]] for part in parts)


def parse_moment(text: str) -> float | None:
    """Seconds since the epoch of an RFC 3339 time; None when it is none."""
    if not re.match(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d", text):
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if found.tzinfo is None else found.timestamp()


class NoStageMatches(Exception):
    """A CEL test has no answer for this object, so no Stage at all is chosen for it."""


def test_passes(test: Test, subject: ExpressionInput) -> bool:
    """Whether one test of a selector holds.

    Raises:
        NoStageMatches: CEL fails on this object.
    """
    if isinstance(test, EqualTest):
        metadata = subject.obj.get("metadata")
        texts = None if metadata is None else metadata.get(test.field)
        return texts is not None and bool(texts.get(test.key) == test.value)
    if isinstance(test, CelTest):
        value, sound = subject.cel(test.expression)
        if not sound or not isinstance(value, bool):
            raise NoStageMatches
        return value
    return _jq_passes(test, subject)


def _jq_passes(test: JqTest, subject: ExpressionInput) -> bool:
    outputs = subject.jq(test.key)
    if test.operator == "Exists":
        return bool(outputs)
    if test.operator == "DoesNotExist":
        return not outputs
    inside = any(_text(output) in test.values for output in outputs)
    return inside == (test.operator == "In")


def _text(output: Any) -> str | None:
    """What selector values are compared with. Object numbers are floats and equal nothing."""
    if isinstance(output, bool):
        return "true" if output else "false"
    if isinstance(output, str):
        return output
    return str(output) if isinstance(output, int) else None


def matching_stages(stages: Sequence[KwokStage], subject: ExpressionInput) -> list[KwokStage]:
    """The Stages whose selector matches; ``stages`` are those of the object's kind, by name.

    None at all when CEL fails in one of them.
    """
    try:
        return [
            stage for stage in stages if all(test_passes(test, subject) for test in stage.tests)
        ]
    except NoStageMatches:
        return []


class StageMatcher:
    """``candidates`` of a fixed set of Stages, remembered by what their selectors read.

    Args:
        stages: those of one kind, by name.
    """

    def __init__(self, stages: Sequence[KwokStage]) -> None:
        self._stages = stages
        tests = [test for stage in stages for test in stage.tests]
        # CEL may ask for the time or draw, and sees other numbers than jq.
        self._readings = None
        if all(
            isinstance(t, EqualTest) or (isinstance(t, JqTest) and is_pure(t.key)) for t in tests
        ):
            typed = any(is_typed(stage.group_version, stage.kind) for stage in stages)
            self._readings = ReadCache(self._found, typed=typed)

    def _found(self, obj: dict[str, Any]) -> list[KwokStage]:
        return matching_stages(self._stages, ExpressionInput(obj, now=0.0))

    def candidates(self, subject: ExpressionInput) -> list[KwokStage]:
        """The Stages whose selector matches."""
        if self._readings is None:
            return matching_stages(self._stages, subject)
        return self._readings.answer_for(subject.obj)


def stage_weight(stage: KwokStage, subject: ExpressionInput) -> int | None:
    """The Stage's weight for this object; None when ``weightFrom`` gives something unreadable."""
    if stage.weight_from is None:
        return stage.weight
    value = subject.first(stage.weight_from)
    if isinstance(value, str):
        return _go_integer(value)
    return int(value) if isinstance(value, float) else stage.weight


def _go_integer(text: str) -> int | None:
    """An integer of 64 bits in any base: 10, 0x1f, 0o17, 017, 0b11; None when it is none."""
    octal = re.fullmatch(r"([-+]?)0([0-7_]+)", text)
    try:
        value = int(f"{octal[1]}0o{octal[2]}", 0) if octal else int(text, 0)
    except ValueError:
        return None
    return value if text == text.strip() and -(2**63) <= value < 2**63 else None


def pick_stage(
    found: Sequence[KwokStage], subject: ExpressionInput, rng: random.Random
) -> KwokStage | None:
    """One of the candidates: by weight, or uniformly where the weights say nothing."""
    if len(found) <= 1:
        return found[0] if found else None
    weights = [stage_weight(stage, subject) for stage in found]
    readable = [stage for stage, value in zip(found, weights, strict=True) if value is not None]
    total = [max(value or 0, 0) for value in weights]
    if sum(total) > 0:
        return rng.choices(found, total)[0]
    return rng.choice(readable or list(found))


def _seconds(
    fixed_ms: int | None, source: StageExpression | None, subject: ExpressionInput
) -> float | None:
    """Seconds that a number of milliseconds or the expression over it say; None for no answer.

    An empty text is no answer at all, anything that is no time falls back to the number.
    """
    found = None if source is None else subject.first(source)
    if isinstance(found, datetime):
        return found.timestamp() - subject.now
    if isinstance(found, timedelta):
        return found.total_seconds()
    if isinstance(found, str):
        if not found:
            return None
        at = parse_moment(found)
        if at is not None:
            return at - subject.now
        duration = go_duration(found)
        if duration is not None:
            return duration
    return None if fixed_ms is None else fixed_ms / 1000


def delay_range(stage: KwokStage, subject: ExpressionInput) -> tuple[float, float] | None:
    """Earliest and latest delay in seconds, negative when an absolute time has passed.

    None when the Stage has none at all. Jitter is the upper end, not an addition, and alone
    decides when it is below the base. A CEL expression for jitter is ignored, as KWOK does.
    """
    delay = stage.delay
    if delay is None:
        return None
    base = _seconds(delay.duration_ms or 0, delay.duration_from, subject)
    if base is None:
        return None
    from_cel = delay.jitter_from is not None and delay.jitter_from.language == "cel"
    jitter = _seconds(delay.jitter_ms, None if from_cel else delay.jitter_from, subject)
    if jitter is None:
        return base, base
    return (jitter, jitter) if jitter <= base else (base, jitter)


def choose_stage(
    stages: Sequence[KwokStage] | StageMatcher, subject: ExpressionInput, rng: random.Random
) -> StageChoice | None:
    """The Stage the object enters next with its delay, None when none matches."""
    matcher = stages if isinstance(stages, StageMatcher) else StageMatcher(stages)
    stage = pick_stage(matcher.candidates(subject), subject, rng)
    if stage is None:
        return None
    bounds = delay_range(stage, subject)
    if bounds is None:
        return StageChoice(stage, 0.0)
    low, high = bounds
    return StageChoice(stage, low if low == high else rng.uniform(low, high))
