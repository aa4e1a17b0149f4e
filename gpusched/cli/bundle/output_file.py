"""Files that commands write for people: whole or not at all, and readable by their owner alone."""

from __future__ import annotations

import gzip
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from gpusched.base.errors import UsageError
from gpusched.io.recordings.snapshot_file import compressed_writer


@contextmanager
def open_output(file: str | None, *, compressed: bool) -> Iterator[IO[bytes]]:
    """Where to write. A file appears under its name only when it is whole; others may not read it.

    What is there and no file, as /dev/null, is written to as it is, and a link stays one.

    Args:
        file: its name; None for stdout.
        compressed: by gzip.

    Raises:
        UsageError: it cannot be written.
    """
    if file is None:
        with _packed(sys.stdout.buffer, compressed=compressed) as out:
            yield out
        return
    name = Path(file)
    if name.is_dir():
        raise UsageError(f"{name} is a folder; name a file in it")
    try:
        path = name.resolve()
        if path.exists() and not path.is_file():
            with path.open("wb") as plain, _packed(plain, compressed=compressed) as out:
                yield out
            return
        handle, part = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as plain, _packed(plain, compressed=compressed) as out:
                yield out
            Path(part).replace(path)
        finally:
            Path(part).unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"{name} cannot be written: {error.strerror or error}") from error


@contextmanager
def _packed(out: IO[bytes], *, compressed: bool) -> Iterator[IO[bytes]]:
    if not compressed:
        yield out
        return
    packed: gzip.GzipFile = compressed_writer(out)
    with packed:
        yield packed  # type: ignore[misc]
