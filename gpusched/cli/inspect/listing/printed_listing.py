"""One listing in every form that ``-o`` knows, and what changed between two of them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final

import yaml

from gpusched.base.classes import frozen
from gpusched.cli.command import clean_cell, print_json, table

_AGES: Final = frozenset({"AGE", "SINCE"})
"""Columns that change by themselves."""


@frozen(kw_only=True)
class Listing:
    """What a command found, in its order.

    Attributes:
        items: as JSON, one each.
        names: ``resource/name`` of each, as ``-o name`` prints it.
        header: titles of the table.
        lines: cells of each item.
        empty: the sentence where there is nothing.
        notes: what this user may not see, and the like.
        document: for ``-o json``; None for a List of the items.
        footer: lines below the table.
    """

    items: tuple[Any, ...]
    names: tuple[str, ...]
    header: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    empty: str
    notes: tuple[str, ...] = ()
    document: Any = None
    footer: tuple[str, ...] = ()

    def keys(self) -> tuple[tuple[str, str], ...]:
        """What tells each item from the others: its namespace, and resource and name."""
        spaces = [each.get("metadata", {}).get("namespace", "") for each in self.items]
        return tuple(zip(spaces, self.names, strict=True))


def print_listing(listing: Listing, output: str | None, *, header: bool = True) -> None:
    """Print a listing; notes go to stderr.

    Args:
        listing: to be printed.
        output: ``json``, ``yaml``, ``name``; a table for others.
        header: whether a table has titles.
    """
    print_notes(listing.notes)
    document = listing.document
    if document is None:
        document = {"apiVersion": "v1", "kind": "List", "items": list(listing.items)}
    if output == "json":
        print_json(document)
    elif output == "yaml":
        print_yaml(document)
    elif output == "name":
        for name in listing.names:
            print(clean_cell(name))
    elif listing.lines:
        print(table([*([listing.header] if header else []), *listing.lines]))
        if header:
            print(*listing.footer, sep="\n", end="\n" if listing.footer else "")
    elif header:
        print(listing.empty)


def print_changes(
    before: Listing, after: Listing, output: str | None, *, widths: Sequence[int]
) -> None:
    """Print what is new or other than before, and what is gone as it was seen last.

    Args:
        before: the listing that was printed.
        after: the listing of now.
        output: as for ``print_listing``.
        widths: of the columns that were printed.
    """
    known = dict(zip(before.keys(), _lasting(before), strict=True))
    now = dict(zip(after.keys(), _lasting(after), strict=True))
    _print_some(after, {key for key, line in now.items() if known.get(key) != line}, output, widths)
    _print_some(before, known.keys() - now.keys(), output, widths, gone=True)
    sys.stdout.flush()


def column_widths(listing: Listing) -> tuple[int, ...]:
    """Characters of the widest cell of each column."""
    rows = [listing.header, *listing.lines]
    return tuple(max(len(row[column]) for row in rows) for column in range(len(listing.header)))


def print_notes(notes: Sequence[str]) -> None:
    """Print what this user may not see, and the like, on stderr."""
    for note in notes:
        print(f"gpusched: {note}", file=sys.stderr)


def print_yaml(value: Any) -> None:
    """YAML on stdout in the order of its keys; ASCII, so that no foreign text reaches a terminal raw."""
    sys.stdout.write(yaml.safe_dump(value, sort_keys=False, allow_unicode=False))


def _lasting(listing: Listing) -> list[tuple[tuple[str, str], ...]]:
    """Cells that do not change by themselves, with their titles."""
    return [
        tuple(each for each in zip(listing.header, line, strict=True) if each[0] not in _AGES)
        for line in listing.lines
    ]


def _print_some(
    listing: Listing,
    chosen: set[tuple[str, str]],
    output: str | None,
    widths: Sequence[int],
    *,
    gone: bool = False,
) -> None:
    for place, key in enumerate(listing.keys()):
        if key not in chosen:
            continue
        if output == "json":
            print_json(listing.items[place])
        elif output == "yaml":
            sys.stdout.write("---\n")
            print_yaml(listing.items[place])
        elif output == "name":
            print(clean_cell(listing.names[place]))
        else:
            cells = dict(zip(listing.header, listing.lines[place], strict=True))
            for title in ("STATE", "POSITION"):
                if gone and title in cells:
                    cells[title] = "Gone"
                    break
            padded = (cell.ljust(width) for cell, width in zip(cells.values(), widths, strict=True))
            print("   ".join(padded).rstrip())
