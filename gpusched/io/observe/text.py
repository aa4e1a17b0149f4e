"""Text that others wrote, made safe to stand inside one line of ours."""

from __future__ import annotations

from gpusched.base import limits


def one_line(text: str, length: int = limits.FOREIGN_TEXT_MAX) -> str:
    """``text`` on one line: control characters escaped, cut at ``length`` characters."""
    cut = text[:length]
    if not cut.isprintable():
        cut = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut)
        cut = cut[:length]
    return cut if len(text) <= length else cut[: length - 3] + "..."
