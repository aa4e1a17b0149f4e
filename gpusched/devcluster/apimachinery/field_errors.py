"""Field errors: one wrong field of an object, in the words that API servers use.

Clients show these texts to people and some compare them, so the builders here are the only
place that knows how a value is quoted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from gpusched.base.classes import frozen

SKIPPED_RULES_TEXT = (
    "some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)
"""The message for a custom resource whose CEL rules could not be run."""


@frozen
class FieldError:
    """One wrong field.

    Attributes:
        type: e.g. ``Required value``, ``Invalid value``, ``Too many``.
        field: path such as ``spec.items[0].name``; ``<nil>`` for the object itself.
        text: everything after ``FIELD: ``, beginning with the type.
        cause_reason: reason of the entry in ``details.causes``.
    """

    type: str
    field: str
    text: str
    cause_reason: str


def quote_value(value: Any, *, ordered: bool = True) -> str:
    """A value as it stands in a text: strings quoted, null, numbers bare, the rest as JSON.

    Maps are printed in order of their keys, structures (not ``ordered``) in that of their fields.
    """
    return msgspec.json.encode(value, order="sorted" if ordered else None).decode()


def _build(kind: str, field: str, *, value: str, detail: str, reason: str) -> FieldError:
    text = ": ".join(part for part in (kind, value, detail) if part)
    return FieldError(kind, field, text, reason)


def required(field: str, detail: str = "") -> FieldError:
    """A value that must be there is missing."""
    return _build("Required value", field, value="", detail=detail, reason="FieldValueRequired")


def invalid(field: str, value: Any, detail: str) -> FieldError:
    """A value of the right type is not acceptable; ``value`` is quoted as it is."""
    return _build(
        "Invalid value", field, value=quote_value(value), detail=detail, reason="FieldValueInvalid"
    )


def invalid_structure(field: str, value: Any, detail: str) -> FieldError:
    """An unacceptable structure, printed with its fields in their own order."""
    shown = quote_value(value, ordered=False)
    return _build("Invalid value", field, value=shown, detail=detail, reason="FieldValueInvalid")


def invalid_unquoted(field: str, detail: str) -> FieldError:
    """An unacceptable value that the text does not repeat, as for failing CEL rules."""
    return _build("Invalid value", field, value="", detail=detail, reason="FieldValueInvalid")


def type_invalid(field: str, value: Any, detail: str) -> FieldError:
    """A value of the wrong type; ``value`` is by custom the name of the type that was sent."""
    return _build(
        "Invalid value",
        field,
        value=quote_value(value),
        detail=detail,
        reason="FieldValueTypeInvalid",
    )


def not_supported(field: str, value: Any, supported: Iterable[Any]) -> FieldError:
    """A value outside a closed list; ``supported`` is listed in its own order."""
    names = [v if isinstance(v, str) else quote_value(v) for v in supported]
    detail = f"supported values: {', '.join(quote_value(n) for n in names)}" if names else ""
    return _build(
        "Unsupported value",
        field,
        value=quote_value(value),
        detail=detail,
        reason="FieldValueNotSupported",
    )


def forbidden(field: str, detail: str) -> FieldError:
    """A field that must not be set or changed here."""
    return _build("Forbidden", field, value="", detail=detail, reason="FieldValueForbidden")


def duplicate(field: str, value: Any) -> FieldError:
    """A value or keyed element that occurs twice; ``value`` is quoted."""
    return _build(
        "Duplicate value", field, value=quote_value(value), detail="", reason="FieldValueDuplicate"
    )


def duplicate_structure(field: str, value: Any) -> FieldError:
    """An element of a list that occurs twice, printed with its fields in their own order."""
    shown = quote_value(value, ordered=False)
    return _build("Duplicate value", field, value=shown, detail="", reason="FieldValueDuplicate")


def too_many(field: str, actual: int, most: int) -> FieldError:
    """A list with ``actual`` items where ``most`` are allowed."""
    return _build(
        "Too many",
        field,
        value=str(actual),
        detail=f"must have at most {most} {'item' if most == 1 else 'items'}",
        reason="FieldValueTooMany",
    )


def too_long(field: str, most: int) -> FieldError:
    """A text longer than ``most`` bytes; the text itself is not repeated."""
    return _build(
        "Too long",
        field,
        value="",
        detail=f"may not be more than {most} bytes",
        reason="FieldValueTooLong",
    )


def not_found(field: str, value: Any) -> FieldError:
    """A reference to something that does not exist."""
    return _build(
        "Not found", field, value=quote_value(value), detail="", reason="FieldValueNotFound"
    )


def rules_skipped() -> FieldError:
    """Tell that CEL rules did not run because earlier errors made the object unreadable."""
    return invalid("<nil>", None, SKIPPED_RULES_TEXT)
