"""What the experiments are and where published numbers come from, in ``words.md``.

What was measured is not there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import attrs

FILE: Final = Path(__file__).with_name("words.md")


@attrs.frozen
class Words:
    """Of one experiment: its title, and paragraphs."""

    title: str
    paragraphs: tuple[str, ...]


def words_of(experiment: str) -> Words:
    """Of an experiment; of one that is not known a bare title."""
    for text in FILE.read_text(encoding="utf-8").split("## ")[1:]:
        head, *paragraphs = text.strip().split("\n\n")
        name, _, title = head.partition(": ")
        if name == experiment:
            return Words(title, tuple(paragraphs))
    return Words("", ())
