"""Write reports to a folder: ``index.html``, a page for each run, and ``data/`` with the numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from gpusched.base.errors import UsageError
from gpusched.lab.report.csv_files import csv_files
from gpusched.lab.report.pages.comparison_page import RUNS_MAX
from gpusched.lab.report.pages.index_page import index_page
from gpusched.lab.report.pages.run_page import render_page
from gpusched.lab.report.run_report import NO_NOTES, ComparisonNotes, RunReport

NAME_MAX: Final = 80
_PLAIN: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")


def write_report(folder: Path, runs: Sequence[RunReport]) -> Path:
    """The report of runs that stand beside each other, such as all scenarios of a command.

    One run: ``index.html`` is its page and ``data/*.csv`` its numbers. Several: ``index.html``
    lists them, ``NAME.html`` is the page of each and ``data/NAME/*.csv`` its numbers.

    Returns:
        ``index.html``.

    Raises:
        UsageError: the folder cannot be written to.
    """
    texts: dict[str, str] = {}
    if len(runs) == 1:
        texts["index.html"] = render_page(runs, files=["data"])
        _add(texts, "data", csv_files(runs[0].record))
        return _write(folder, texts)
    names = file_names([one.record.name for one in runs])
    texts["index.html"] = index_page(runs, [f"{name}.html" for name in names])
    for one, name in zip(runs, names, strict=True):
        texts[f"{name}.html"] = render_page([one], files=[f"data/{name}"], back="index.html")
        _add(texts, f"data/{name}", csv_files(one.record))
    return _write(folder, texts)


def write_compared(
    folder: Path,
    runs: Sequence[RunReport],
    *,
    title: str,
    notes: ComparisonNotes = NO_NOTES,
) -> Path:
    """The report of two to six runs of one thing under several configurations, compared.

    ``index.html`` is the comparison, with the first as what others are compared with;
    ``data/NAME/*.csv`` are the numbers of each. ``record.name`` names the configuration.

    Returns:
        ``index.html``.

    Raises:
        UsageError: the folder cannot be written to, or these runs cannot be compared.
    """
    names = file_names([one.record.name for one in runs])
    if not 2 <= len(runs) <= RUNS_MAX:
        raise UsageError(
            f"a report compares two to {RUNS_MAX} configurations, not {len(runs)}: name fewer"
        )
    if len({one.record.name for one in runs}) < len(runs):
        raise UsageError("a report needs configurations with names of their own")
    files = [f"data/{name}" for name in names]
    texts = {"index.html": render_page(runs, title=title, files=files, notes=notes)}
    for one, name in zip(runs, names, strict=True):
        _add(texts, f"data/{name}", csv_files(one.record))
    return _write(folder, texts)


def file_names(names: Sequence[str]) -> list[str]:
    """A safe and unique file name for each name, whatever it holds, without an ending."""
    taken = {"index"}
    found = []
    for name in names:
        plain = "".join(each if each in _PLAIN else "-" for each in name)[:NAME_MAX]
        plain = plain.lstrip(".") or "run"
        unique, turn = plain, 2
        # Some file systems do not tell case apart.
        while unique.lower() in taken:
            unique, turn = f"{plain}-{turn}", turn + 1
        taken.add(unique.lower())
        found.append(unique)
    return found


def _add(texts: dict[str, str], under: str, files: Mapping[str, str]) -> None:
    texts.update({f"{under}/{name}": text for name, text in files.items()})


def _write(folder: Path, texts: Mapping[str, str]) -> Path:
    try:
        for name, text in texts.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise UsageError(f"the report cannot be written to {folder}: {error.strerror}") from error
    return folder / "index.html"
