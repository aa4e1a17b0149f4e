"""Health checks: one word, or the list of what was checked for those who ask."""

from __future__ import annotations

from typing import Final

_HOOKS: Final = (
    "poststarthook/rbac/bootstrap-roles",
    "poststarthook/scheduling/bootstrap-system-priority-classes",
)
_CHECKS: Final = {
    "healthz": ("ping", "log", "etcd", *_HOOKS),
    "livez": ("ping", "log", "etcd", *_HOOKS),
    "readyz": ("ping", "log", "etcd", "informer-sync", *_HOOKS, "shutdown"),
}
"""Those checks of a real server that have a counterpart here; all of them hold while it answers."""


def health(parts: list[str], *, verbose: bool, excluded: list[str]) -> tuple[int, str]:
    """Answer a health path.

    Args:
        parts: of the path: ``["readyz"]``, or with the name of one check behind it.
        verbose: whether the single checks are listed.
        excluded: names of checks that do not count.

    Returns:
        HTTP status and text.
    """
    checks = _CHECKS[parts[0]]
    one = "/".join(parts[1:])
    if one:
        return (200, "ok") if one in checks else (404, "404 page not found\n")
    if not verbose:
        return 200, "ok"
    lines = [
        f"[+]{check} excluded: ok" if check in excluded else f"[+]{check} ok" for check in checks
    ]
    unknown = sorted({name for name in excluded if name not in checks})
    if unknown:
        names = ", ".join(f'"{name}"' for name in unknown)
        lines.append(f"warn: some health checks cannot be excluded: no matches for {names}")
    return 200, "\n".join([*lines, f"{parts[0]} check passed", ""])
