"""The file of a recorded cluster: one line that describes it, then one line of JSON an object.

    {"gpuschedSnapshot": 1, "takenAt": "2026-11-21T12:00:00Z", "server": "v1.36.1", ...}
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a", ...}}
    ...

Compressed with gzip when its name ends in ``.gz``; a reader looks at the bytes, not at the name.
Objects stand in the order in which they can be applied: by kind as listed in the header, then by
namespace and name.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Annotated, Any, Final, Protocol, TypeAlias

import msgspec
from msgspec import Meta, Struct

from gpusched.api.meta.identity import InvalidObject, format_time, parse_time
from gpusched.base.classes import frozen
from gpusched.base.errors import ConfigError
from gpusched.base.limits import OBJECTS_PER_KIND_MAX, SNAPSHOT_LINE_MAX

Json: TypeAlias = dict[str, Any]

FORMAT: Final = 1
"""Of the files that are written; no other is read."""
_GZIP: Final = b"\x1f\x8b"
_COMPRESSION: Final = 6


@frozen
class MissingKind:
    """A kind of which the file has no objects although there may be some.

    Attributes:
        resource: plural name with its group, such as ``jobs.batch``.
        why: one sentence.
        served: False where the API server does not know the kind, so that there are none.
    """

    resource: str
    why: str
    served: bool = True


@frozen(kw_only=True)
class SnapshotFile:
    """A recorded cluster.

    Attributes:
        path: of the file, for sentences.
        taken_at: when it was recorded, seconds since the epoch, by the API server's clock.
        server: version of the API server, such as ``v1.36.1``.
        recorder: version of gpusched that wrote it.
        anonymized: whether names are pseudonyms.
        missing: kinds that are not in it.
        objects: by plural name with group (``pods``, ``jobs.batch``,
            ``podgroups.scheduling.gpusched.io``), as the API has them less what
            ``gpusched snapshot`` leaves out; every kind that was read is there, in the order in
            which objects can be applied.
    """

    path: str
    taken_at: float
    server: str
    recorder: str
    anonymized: bool = False
    missing: tuple[MissingKind, ...] = ()
    objects: Mapping[str, tuple[Json, ...]]

    def __len__(self) -> int:
        return sum(len(items) for items in self.objects.values())

    def __iter__(self) -> Iterator[Json]:
        for items in self.objects.values():
            yield from items


class _LineReader(Protocol):
    """A file that is read line by line."""

    def readline(self, size: int, /) -> bytes:
        """The next line, or so many bytes of it; empty at the end."""


class _MissingEntry(Struct, rename="camel"):
    resource: str
    why: str
    served: bool = True


class _HeaderLine(Struct, rename="camel", forbid_unknown_fields=True):
    gpusched_snapshot: int
    taken_at: str
    server: str
    recorder: str
    counts: dict[str, Annotated[int, Meta(ge=0, le=OBJECTS_PER_KIND_MAX)]]
    anonymized: bool = False
    missing: list[_MissingEntry] = []


class _FormatLine(Struct, rename="camel"):
    gpusched_snapshot: int


class _ObjectIdentity(Struct):
    name: str
    namespace: str = ""


class _ObjectLine(Struct, rename="camel"):
    api_version: str
    kind: str
    metadata: _ObjectIdentity


_HEADER: Final = msgspec.json.Decoder(_HeaderLine)
_MARK: Final = msgspec.json.Decoder(_FormatLine)
_OBJECT: Final = msgspec.json.Decoder(_ObjectLine)
_ANY: Final = msgspec.json.Decoder(Json)
_FAULTS: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


# -- writing -----------------------------------------------------------------------------------
def write_snapshot(
    out: IO[bytes], snapshot: SnapshotFile, lines: Mapping[str, Sequence[bytes]]
) -> None:
    """Write a file.

    Args:
        out: where to; not closed.
        snapshot: its header; ``objects`` is not looked at.
        lines: the objects as JSON without line breaks, by plural name, in the order of the file.

    Raises:
        OSError: it cannot be written.
    """
    header = _HeaderLine(
        gpusched_snapshot=FORMAT,
        taken_at=format_time(snapshot.taken_at),
        server=snapshot.server,
        recorder=snapshot.recorder,
        counts={resource: len(items) for resource, items in lines.items()},
        anonymized=snapshot.anonymized,
        missing=[_MissingEntry(each.resource, each.why, each.served) for each in snapshot.missing],
    )
    out.write(msgspec.json.encode(header) + b"\n")
    for items in lines.values():
        for line in items:
            out.write(line + b"\n")


def compressed_writer(out: IO[bytes]) -> gzip.GzipFile:
    """What is written to it arrives in ``out`` compressed, the same bytes for the same content."""
    return gzip.GzipFile(filename="", mode="wb", compresslevel=_COMPRESSION, fileobj=out, mtime=0)


# -- reading -----------------------------------------------------------------------------------
def read_snapshot(path: str | Path) -> SnapshotFile:
    """Read a file.

    Raises:
        ConfigError: with file and line: it cannot be opened, is no snapshot, is one of another
            version, is cut off or damaged.
    """
    name = str(path)
    try:
        with Path(path).open("rb") as file:
            start = file.read(len(_GZIP))
            file.seek(0)
            if start != _GZIP:
                return _read(file, name)
            with gzip.GzipFile(fileobj=file) as unpacked:
                return _read(unpacked, name)
    except EOFError:
        raise ConfigError(
            f"{name}: the file is cut off: its compressed content ends early"
        ) from None
    except (zlib.error, gzip.BadGzipFile) as error:
        raise ConfigError(f"{name}: the file is damaged: {error}") from error
    except OSError as error:
        raise ConfigError(f"{name}: cannot be read: {error.strerror or error}") from error


def _read(file: _LineReader, name: str) -> SnapshotFile:
    lines = _lines(file, name)
    header, taken_at = _header(next(lines, b""), name)
    objects: dict[str, tuple[Json, ...]] = {}
    number = 1
    for resource, count in header.counts.items():
        items: list[Json] = []
        for raw in _upto(lines, count):
            number += 1
            items.append(_object(raw, resource, where=f"{name}:{number}"))
        if len(items) < count:
            raise ConfigError(
                f"{name}:{number + 1}: the file is cut off: of {count} {resource} that line 1 "
                f"tells of there are {len(items)}"
            )
        objects[resource] = tuple(items)
    if next(lines, None) is not None:
        raise ConfigError(
            f"{name}:{number + 1}: there are more objects than the {number - 1} that line 1 "
            f"tells of; who edits a snapshot has to correct its counts"
        )
    return SnapshotFile(
        path=name,
        taken_at=taken_at,
        server=header.server,
        recorder=header.recorder,
        anonymized=header.anonymized,
        missing=tuple(MissingKind(each.resource, each.why, each.served) for each in header.missing),
        objects=objects,
    )


def _lines(file: _LineReader, name: str) -> Iterator[bytes]:
    number = 0
    while line := file.readline(SNAPSHOT_LINE_MAX + 1):
        number += 1
        if len(line) > SNAPSHOT_LINE_MAX:
            if number == 1:
                raise _no_snapshot(name)
            raise ConfigError(
                f"{name}:{number}: the line is longer than {SNAPSHOT_LINE_MAX:,} bytes, which no "
                "object is"
            )
        yield line


def _upto(lines: Iterator[bytes], count: int) -> Iterable[bytes]:
    for _ in range(count):
        line = next(lines, None)
        if line is None:
            return
        yield line


def _header(raw: bytes, name: str) -> tuple[_HeaderLine, float]:
    """What line 1 says, and when the cluster was recorded."""
    try:
        mark = _MARK.decode(raw)
    except _FAULTS:
        raise _no_snapshot(name) from None
    if mark.gpusched_snapshot != FORMAT:
        raise ConfigError(
            f"{name}:1: this is a snapshot of format {mark.gpusched_snapshot}; this version of "
            f"gpusched reads format {FORMAT}"
        )
    try:
        header = _HEADER.decode(raw)
        return header, parse_time(header.taken_at)
    except InvalidObject as error:
        raise ConfigError(f"{name}:1: takenAt: {error.why}") from error
    except _FAULTS as error:
        raise ConfigError(
            f"{name}:1: the description of the snapshot is damaged: {error}"
        ) from error


def _no_snapshot(name: str) -> ConfigError:
    return ConfigError(
        f"{name}:1: this is no snapshot of a cluster; gpusched snapshot --output-file FILE makes one"
    )


def _object(raw: bytes, resource: str, *, where: str) -> Json:
    try:
        found = _OBJECT.decode(raw)
        item: Json = _ANY.decode(raw)
    except _FAULTS as error:
        if not raw.endswith(b"\n"):
            raise ConfigError(f"{where}: the file is cut off in the middle of this line") from error
        raise ConfigError(f"{where}: this line is no object of the API: {error}") from error
    group = found.api_version.rpartition("/")[0]
    if group != resource.partition(".")[2]:
        raise ConfigError(
            f"{where}: {found.kind} of {found.api_version} stands among {resource}; who edits a "
            "snapshot has to correct its counts"
        )
    return item
