"""Label selectors, node selector terms, taints and tolerations: data and pure matching."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from gpusched.api.meta.identity import InvalidObject
from gpusched.base.classes import frozen

_DECIMAL: Final = re.compile(r"[+-]?[0-9]{1,64}").fullmatch
OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"})
NUMERIC: Final = frozenset({"Gt", "Lt"})
"""Operators of tolerations that compare the taint's value with their own as numbers."""


@frozen(slots=True)
class Requirement:
    """One expression of a selector."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels satisfy it; absent keys satisfy NotIn and DoesNotExist."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
        return self._compares(value)

    def _compares(self, value: str | None) -> bool:
        own, bound = int64(value), int64(self.values[0] if self.values else None)
        if own is None or bound is None:
            return False
        return own > bound if self.operator == "Gt" else own < bound


def int64(text: str | None) -> int | None:
    """A decimal number of 64 bits with or without a sign, as the API reads it; else None."""
    if text is None or not _DECIMAL(text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


@frozen(slots=True)
class Selector:
    """A LabelSelector: all requirements hold. Empty selects everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels is selected."""
        return all(requirement.matches(labels) for requirement in self.requirements)


EVERYTHING = Selector()


@frozen(slots=True)
class NodeTerm:
    """One term of a node affinity; a term without any expression matches no node."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str], *, name: str) -> bool:
        """Whether a node of that name and those labels satisfies the term."""
        if not self.labels and not self.fields:
            return False
        return all(part.matches(labels) for part in self.labels) and all(
            part.matches({"metadata.name": name}) for part in self.fields
        )


@frozen(slots=True)
class Taint:
    """A node's repulsion. Only NoSchedule and NoExecute keep pods away for certain."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        return (
            f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"
        )


@frozen(slots=True)
class Toleration:
    """A pod's consent to a taint; an empty key with Exists consents to all."""

    key: str
    operator: str
    value: str
    effect: str

    def tolerates(self, taint: Taint) -> bool:
        """Whether the taint does not keep this pod away."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if self.operator == "Exists":
            return True
        if self.operator in NUMERIC:
            return self._compares(taint.value)
        return bool(self.key) and self.value == taint.value

    def _compares(self, value: str) -> bool:
        theirs, own = int64(value), int64(self.value)
        if theirs is None or own is None:
            return False
        return theirs > own if self.operator == "Gt" else theirs < own


def requirement(key: str, operator: str, values: tuple[str, ...], *, field: str) -> Requirement:
    """A checked requirement.

    Raises:
        InvalidObject: an operator that does not exist.
    """
    if operator not in OPERATORS:
        raise InvalidObject(field, f"operator {operator[:40]!r} is not known")
    return Requirement(key, operator, values)
