"""The file of a bundle: a tar archive whose first member lists what is in it and what is not."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Mapping, Sequence
from typing import IO, Final

from gpusched.api.meta.identity import format_time
from gpusched.base.classes import frozen

FOLDER: Final = "gpusched-bundle"
_KEY_NAME: Final = r"[\w.-]*(?:passw(?:or)?d|secret|token|api[-_]?key|credential)[\w.-]*"
_SECRETS: Final = (
    re.compile(r"(?i)(\bbearer\s+)[^\s\"',}]{8,}"),
    re.compile(rf"(?i)((?<![\w/-]){_KEY_NAME}[\"']?\s*[:=]\s*[\"']?)(?![\"'\s])[^\s\"',}}]+"),
    re.compile(r"(\b[a-z][a-z0-9+.-]*://[^\s/:@]+:)[^\s/@]+(?=@)"),
    re.compile(r"(\b)eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*"),
)
"""What comes before a secret, as a group, and the secret: headers, fields, addresses, tokens."""
_MASK: Final = r"\1(left out)"


@frozen
class BundlePart:
    """One file of a bundle.

    Attributes:
        name: below the folder of the bundle.
        body: its content.
        about: what it is, for the list.
    """

    name: str
    body: bytes
    about: str


@frozen
class MissingPart:
    """What a bundle does not have, and why."""

    name: str
    why: str


def mask_secrets(text: str) -> str:
    """The text without what looks like a password, a token or a key.

    None is expected in anything that is read; plugins of other authors may log and take what they like.
    """
    for pattern in _SECRETS:
        text = pattern.sub(_MASK, text)
    return text


def write_archive(
    out: IO[bytes],
    parts: Sequence[BundlePart],
    missing: Sequence[MissingPart],
    *,
    now: float,
    about: Mapping[str, str],
) -> None:
    """Write all parts, sorted by name, behind a list of them.

    Args:
        out: where to; not closed.
        parts: files.
        missing: what there is none of.
        now: time of the files, seconds since the epoch.
        about: facts for the head of the list.
    """
    ordered = sorted(parts, key=lambda part: part.name)
    contents = list_contents(ordered, missing, now=now, about=about)
    first = BundlePart("CONTENTS.txt", contents.encode(), "")
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        for part in (first, *ordered):
            member = tarfile.TarInfo(f"{FOLDER}/{part.name}")
            member.size, member.mtime, member.mode = len(part.body), int(now), 0o600
            archive.addfile(member, io.BytesIO(part.body))


def list_contents(
    parts: Sequence[BundlePart],
    missing: Sequence[MissingPart],
    *,
    now: float,
    about: Mapping[str, str],
) -> str:
    """The list, for a person who is asked to send it: what is inside, and what is not."""
    lines = [f"A bundle for a bug report about gpusched, made at {format_time(now)}.", ""]
    lines += [f"{name}: {value}" for name, value in about.items()]
    lines += ["", "Inside:"]
    lines += [f"  {part.name} ({len(part.body):,} bytes): {part.about}" for part in parts]
    lines += ["", "Not inside:"]
    lines += [f"  {each.name}: {each.why}" for each in missing] or ["  nothing is missing"]
    return "\n".join(lines) + "\n"
