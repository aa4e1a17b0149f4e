"""Stories of faults in placement, with what was asked kept in a file so that it can be asked again.

What is asked is numbers: no names of pods, no credentials.
"""

from __future__ import annotations

import hashlib
import os
import tempfile

from gpusched import limits
from gpusched.io.logs import Log

_log = Log(__name__)


class Dumps:
    """Tells the first few stories in full, and no more: a fault that returns must not fill disks."""

    def __init__(self) -> None:
        self._told = 0

    def tell(self, sentence: str, story: str, *, what: str = "", body: bytes = b"") -> None:
        """Log a fault, and keep what was asked.

        Args:
            sentence: about the fault.
            story: several lines, such as a stack; may be empty.
            what: was asked, the name of its type; empty when nothing was.
            body: it, pickled.
        """
        self._told += 1
        if self._told > limits.SOLVER_DUMPS_MAX:
            return
        facts: dict[str, object] = {}
        if what:
            facts = {
                "asked": what,
                "bytes": len(body),
                "sha256": hashlib.sha256(body).hexdigest(),
                "kept": _kept(body),
            }
        _log.dump(sentence, story.strip(), **facts)


def _kept(body: bytes) -> str:
    """Write it to a file that only we can read, and return its place."""
    try:
        with tempfile.NamedTemporaryFile(
            "wb", prefix=f"gpusched-{os.getpid()}-", suffix=".pickle", delete=False
        ) as file:
            file.write(body)
    except OSError as error:
        return f"nowhere: {error.strerror}"
    return file.name
