"""``gpusched snapshot``: record a cluster, without secrets and environment, into one file."""

from __future__ import annotations

import argparse
import secrets
import sys
from pathlib import Path
from typing import Any, Final

from gpusched.api.meta.identity import format_time
from gpusched.base.clock import SystemClock
from gpusched.base.errors import UsageError
from gpusched.cli.bundle.output_file import open_output
from gpusched.cli.command import (
    Subparsers,
    add_kubeconfig,
    connection_choice,
)
from gpusched.cli.inspect.cluster_reader import with_cluster
from gpusched.io.client.api_client import ApiClient
from gpusched.io.recordings.pseudonyms import Pseudonyms
from gpusched.io.recordings.snapshot_file import write_snapshot
from gpusched.io.recordings.snapshot_reader import ClusterRecording, take_snapshot

_KEY_BYTES: Final = 32
_KEY_LEAST: Final = 16


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = subparsers.add_parser(
        "snapshot",
        description="Record a cluster into one file, which gpusched simulate takes. Of each "
        "object only what decides about placement is kept: no environment, commands, images, "
        "secrets or annotations of others.",
    )
    add_kubeconfig(parser)
    parser.add_argument(
        "--output-file",
        metavar="FILE",
        help="where to write (default: stdout); compressed when its name ends in .gz",
    )
    parser.add_argument(
        "--anonymize",
        action="store_true",
        help="hashes in place of all names, labels and other texts of users",
    )
    parser.add_argument(
        "--anonymize-key",
        metavar="FILE",
        help="hash with the content of this file as key, so that several snapshots agree "
        "(default: a key that nobody keeps)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Record.

    Raises:
        UsageError: the file cannot be written, or there is none and stdout is a terminal.
        ClusterUnreachable: no cluster.
        ApiError: the server refused.
    """
    file: str | None = arguments.output_file
    if file is None and sys.stdout.isatty():
        raise UsageError(
            "a snapshot is not for a terminal; name a file with --output-file FILE, or redirect "
            "stdout with > FILE"
        )
    pseudonyms = _pseudonyms(arguments)
    with open_output(file, compressed=(file or "").endswith(".gz")) as out:
        recording = with_cluster(connection_choice(arguments), _take(pseudonyms))
        write_snapshot(out, recording.header, recording.lines)
    _tell_totals(recording, file)
    return 0


def _pseudonyms(arguments: argparse.Namespace) -> Pseudonyms | None:
    if arguments.anonymize_key is None:
        return Pseudonyms(secrets.token_bytes(_KEY_BYTES)) if arguments.anonymize else None
    path = Path(arguments.anonymize_key)
    try:
        key = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    if len(key) < _KEY_LEAST:
        raise UsageError(
            f"{path} holds {len(key)} bytes, too few for a key that cannot be guessed; "
            f"head -c {_KEY_BYTES} /dev/urandom > {path} makes one"
        )
    return Pseudonyms(key)


def _take(pseudonyms: Pseudonyms | None) -> Any:
    progress = _SnapshotProgress()

    async def take(api: ApiClient) -> ClusterRecording:
        try:
            return await take_snapshot(
                api, now=SystemClock().now(), pseudonyms=pseudonyms, tell=progress.show_count
            )
        finally:
            progress.end()

    return take


class _SnapshotProgress:
    """How far it is, on one line of a terminal; nowhere else."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._shown = sys.stderr.isatty()

    def show_count(self, resource: str, count: int) -> None:
        """So many objects of a kind were read."""
        self._counts[resource] = count
        if self._shown:
            total = sum(self._counts.values())
            sys.stderr.write(f"\r\033[Kreading: {total:,} objects, {count:,} {resource}")
            sys.stderr.flush()

    def end(self) -> None:
        """Nothing of it stays on the screen."""
        if self._shown:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()


def _tell_totals(recording: ClusterRecording, file: str | None) -> None:
    header = recording.header
    counts = [f"{len(items):,} {name}" for name, items in recording.lines.items() if items]
    total = sum(map(len, recording.lines.values()))
    where = f"; written to {file}" if file else ""
    listed = ", ".join(counts) or "nothing"
    _say(
        f"recorded {total:,} objects of {header.server} at {format_time(header.taken_at)}: "
        f"{listed}{where}"
    )
    absent = [each.resource for each in header.missing if not each.served]
    if absent:
        _say(f"not served by this cluster: {', '.join(absent)}")
    for each in header.missing:
        if each.served:
            _say(f"not in the snapshot: {each.resource}, because {each.why}")


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr)
