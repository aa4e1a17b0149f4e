"""Stories of faults, with what they were about kept in a file so that it can be looked at again.

What placement is asked is numbers; dumps of objects name them. Neither holds credentials.
"""

from __future__ import annotations

import hashlib
import os
import tempfile

from gpusched.base import limits
from gpusched.io.observe.logs import Logger

_log = Logger(__name__)


class FaultDumps:
    """Tells the first few stories in full, and no more: a fault that returns must not fill disks.

    Args:
        most: how many.
    """

    def __init__(self, *, most: int = limits.SOLVER_DUMPS_MAX) -> None:
        self._told = 0
        self._most = most

    def write(
        self,
        message: str,
        story: str,
        *,
        what: str = "",
        body: bytes = b"",
        suffix: str = ".pickle",
    ) -> None:
        """Log a fault, and keep what was asked.

        Args:
            message: about the fault.
            story: several lines, such as a stack; may be empty.
            what: was asked, the name of its type; empty when nothing was.
            body: it, pickled, or as text.
            suffix: of the file that keeps it.
        """
        self._told += 1
        if self._told > self._most:
            return
        facts: dict[str, object] = {}
        if what:
            facts = {
                "asked": what,
                "bytes": len(body),
                "sha256": hashlib.sha256(body).hexdigest(),
                "kept": _write_dump(body, suffix),
            }
        _log.dump(message, story.strip(), **facts)


def _write_dump(body: bytes, suffix: str) -> str:
    """Write it to a file that only we can read, and return its place."""
    try:
        with tempfile.NamedTemporaryFile(
            "wb", prefix=f"gpusched-{os.getpid()}-", suffix=suffix, delete=False
        ) as file:
            file.write(body)
    except OSError as error:
        return f"nowhere: {error.strerror}"
    return file.name
