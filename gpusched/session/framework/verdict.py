"""What a policy answers: never None, never a bare False."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING

from gpusched.base.classes import former_names, frozen


class VerdictCode(Enum):
    """How the mechanism goes on."""

    ALLOW = "allow"
    ABSTAIN = "abstain"
    WAIT = "wait"
    DENY = "deny"
    ERROR = "error"


@frozen(slots=True)
class Verdict:
    """One policy's answer on one gang.

    Attributes:
        code: WAIT is checked again when something changes, DENY when the spec changes.
        reason: one of ``session.reasons.Reason``; empty for ALLOW and ABSTAIN.
        message: for users, with numbers.
        ends_turn: of a stop check: whether the gang has had its turn, so that it stands behind
            those of equal right that waited meanwhile.
    """

    code: VerdictCode
    reason: str = ""
    message: str = ""
    ends_turn: bool = False

    @property
    def refuses(self) -> bool:
        """Whether the gang may not go on now."""
        code = self.code  # asked of each answer: two comparisons cost less than a search
        return code is not VerdictCode.ALLOW and code is not VerdictCode.ABSTAIN

    if not TYPE_CHECKING:  # a type checker is to find names that do not exist
        __getattr__ = former_names(
            "Verdict",
            {
                "sentence": "message",
            },
        )


ALLOW = Verdict(VerdictCode.ALLOW)
ABSTAIN = Verdict(VerdictCode.ABSTAIN)


def wait(reason: str, message: str, **numbers: object) -> Verdict:
    """Not now; ``{name}`` in the sentence is filled from the numbers."""
    return Verdict(VerdictCode.WAIT, reason, message.format(**numbers))


def deny(reason: str, message: str, **numbers: object) -> Verdict:
    """Not before the spec changes; ``{name}`` in the sentence is filled from the numbers."""
    return Verdict(VerdictCode.DENY, reason, message.format(**numbers))


def error(reason: str, message: str) -> Verdict:
    """A fault of ours or of a plugin; tried again later."""
    return Verdict(VerdictCode.ERROR, reason, message)


def first_refusal(checks: Sequence[Callable[..., Verdict]], *about: object) -> Verdict:
    """ALLOW, or the first answer that refuses; ``about`` are the arguments of each check."""
    for check in checks:
        verdict = check(*about)
        if verdict is not ALLOW and verdict.refuses:
            return verdict
    return ALLOW
