"""``python -m benchmarks.security_figures``: the tables of docs/security-figures.md, made anew.

Permissions come from the manifests, dependencies from the lock file of the image and from what is
installed here. Nothing is asked of a network. Exit status 1 when the page says something else.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "security-figures.md"
_RIGHTS: Final = ("rbac.yaml", "rbac-adapters.yaml")
_LOCK: Final = "requirements-run.lock"
_PIN: Final = re.compile(r"^([\w.-]+)==(\S+?)(?: ; (.*?))? \\$")


def permissions() -> list[str]:
    """A row for each rule of the daemon's roles."""
    rows = ["| role | resources | verbs | names |", "|---|---|---|---|"]
    for file in _RIGHTS:
        for role in yaml.safe_load_all((ROOT / "manifests" / file).read_text()):
            rows += [_rule(role, rule) for rule in (role or {}).get("rules", ())]
    return rows


def _rule(role: dict[str, Any], rule: dict[str, Any]) -> str:
    where = role["metadata"].get("namespace")
    name = role["metadata"]["name"] + (f" in {where}" if where else "")
    groups = [group or "core" for group in rule["apiGroups"]]
    resources = f"{', '.join(rule['resources'])} ({', '.join(groups)})"
    names = ", ".join(rule.get("resourceNames", ())) or "all"
    return f"| {name} | {resources} | {' '.join(rule['verbs'])} | {names} |"


def pins() -> Iterator[tuple[str, str, str, int]]:
    """Name, version, condition and number of hashes of each package of the image."""
    found: list[Any] | None = None
    for line in (ROOT / _LOCK).read_text().splitlines():
        match = _PIN.match(line)
        if match:
            if found:
                yield found[0], found[1], found[2], found[3]
            found = [match[1], match[2], match[3] or "", 0]
        elif "--hash=sha256:" in line and found:
            found[3] += 1
    if found:
        yield found[0], found[1], found[2], found[3]


def dependencies() -> list[str]:
    """A row for each package: version, licence as it says itself, number of pinned archives."""
    rows = [
        "| package | version | only where | licence | sha256 of archives |",
        "|---|---|---|---|---|",
    ]
    for name, version, condition, hashes in pins():
        rows.append(f"| {name} | {version} | {condition} | {_licence(name)} | {hashes} |")
    return rows


def _licence(name: str) -> str:
    told = metadata.metadata(name)
    for field in ("License-Expression", "Classifier", "License"):
        found = [str(each) for each in told.get_all(field, [])]
        if field == "Classifier":
            found = [each.rpartition(" :: ")[2] for each in found if each.startswith("License ::")]
            found = [each for each in found if each != "OSI Approved"]
        if found:
            return ", ".join(found).splitlines()[0]
    return "not told"


TABLES: Final = {"permissions": permissions, "dependencies": dependencies}


def renewed(page: str) -> str:
    """The page with each table as it is now, between its two marks."""
    for name, table in TABLES.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, _, rest = page.partition(begin)
        _, _, after = rest.partition(end)
        page = f"{before}{begin}{chr(10).join(table())}\n{end}{after}"
    return page


def main() -> int:
    """Compare the page, or write it."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.security_figures", description=__doc__
    )
    parser.add_argument("--write", action="store_true", help="write the page instead")
    arguments = parser.parse_args()
    page = PAGE.read_text(encoding="utf-8")
    if arguments.write:
        PAGE.write_text(renewed(page), encoding="utf-8")
        return 0
    if page == renewed(page):
        return 0
    print(
        f"{PAGE.name} is not what the manifests and the lock file say: use --write", file=sys.stderr
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
