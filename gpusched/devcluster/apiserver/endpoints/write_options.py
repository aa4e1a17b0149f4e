"""Query parameters of writes, checked as the API server checks its option kinds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gpusched.devcluster.apimachinery.field_errors import (
    FieldError,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
)

_MANAGER_MAX: Final = 128
_VALIDATIONS: Final = ("", "Ignore", "Strict", "Warn")


def write_option_errors(query: Mapping[str, str], *, patch: bool, apply: bool) -> list[FieldError]:
    """What is wrong with the options of a create, an update or a patch."""
    errors: list[FieldError] = []
    manager = query.get("fieldManager", "")
    if patch and not apply and "force" in query:
        errors.append(forbidden("force", "may not be specified for non-apply patch"))
    if apply and not manager:
        errors.append(required("fieldManager", "is required for apply patch"))
    if len(manager.encode()) > _MANAGER_MAX:
        errors.append(too_long("fieldManager", _MANAGER_MAX))
    errors += [
        invalid("fieldManager", manager, f"invalid character U+{ord(c):04X} (at position {at})")
        for at, c in enumerate(manager)
        if not c.isprintable()
    ]
    dry_run = query.get("dryRun", "")
    if dry_run not in {"", "All"}:
        errors.append(not_supported("dryRun", [dry_run], ("All",)))
    validation = query.get("fieldValidation", "")
    if validation not in _VALIDATIONS:
        errors.append(not_supported("fieldValidation", validation, _VALIDATIONS))
    return errors
