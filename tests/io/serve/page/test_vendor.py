"""Libraries of the page are those that their packages ship, each with its licence."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[4] / "gpusched" / "io" / "serve" / "page"
LISTED = json.loads((PAGE / "vendor" / "vendor.json").read_text(encoding="utf-8"))["files"]


def test_every_file_is_listed():
    """Nothing comes in unnamed, and every package brings its licence."""
    present = {each.name for each in (PAGE / "vendor").iterdir()} - {"vendor.json"}
    assert {each["file"] for each in LISTED} == present
    licences = {each["package"] for each in LISTED if each["file"].endswith("LICENSE.txt")}
    assert licences == {each["package"] for each in LISTED}


@pytest.mark.parametrize("entry", LISTED, ids=lambda entry: entry["file"])
def test_every_file_is_what_was_taken_in(entry):
    body = (PAGE / "vendor" / entry["file"]).read_bytes()
    assert hashlib.sha256(body).hexdigest() == entry["sha256"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", entry["version"])
    assert entry["license"] in {"BSD-3-Clause", "MIT"}


def test_the_page_asks_nobody_else():
    """No address of another server stands in what browsers read of ours."""
    own = [
        each for each in sorted(PAGE.rglob("*")) if each.is_file() and "vendor" not in each.parts
    ]
    assert len(own) > 15
    found = {
        (each.name, address)
        for each in own
        for address in re.findall(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]+", each.read_text("utf-8"))
    }
    assert found == {("icon.svg", "http://www.w3.org")}  # the name of SVG, which nothing reads
