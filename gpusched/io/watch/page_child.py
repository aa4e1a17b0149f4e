"""What runs in a process that decodes pages of pods beside the daemon, until the daemon's end of its pipe closes.

A page comes in a file that both have in memory, and what was decoded goes back in its place.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
import signal
import struct
import sys
from pathlib import Path
from typing import Final

from gpusched.api.meta.gpu_resources import gpu_resources_in_force
from gpusched.api.pod.columns import PodsWriter
from gpusched.api.pod.decode import PODS
from gpusched.base.errors import UndecodableObject

ASKED: Final = struct.Struct(">IQ")
"""Number of the place, and bytes of the page there."""
ANSWERED: Final = struct.Struct(">IQ")
"""Number of the place, and bytes of the pods there; 0 where the daemon has to read the page itself."""
PLACE_BYTES: Final = 16 * 2**20
PLACES: Final = 2
"""Pages that are here at once: one is decoded while the other waits."""


def serve(file: int, resources: str) -> None:
    """Decode pages until there are no more.

    Args:
        file: number of the open file that holds the places.
        resources: which resources are GPUs: a pickle, in hexadecimal digits.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _go_first()
    places = mmap.mmap(file, PLACES * PLACE_BYTES)
    writer = PodsWriter()
    with gpu_resources_in_force(pickle.loads(bytes.fromhex(resources))):  # noqa: S301 - from our parent
        while len(head := sys.stdin.buffer.read(ASKED.size)) == ASKED.size:
            place, size = ASKED.unpack(head)
            at = place * PLACE_BYTES
            pods = _decoded(writer, places[at : at + size])
            places[at : at + len(pods)] = pods
            os.write(sys.stdout.fileno(), ANSWERED.pack(place, len(pods)))


def _decoded(writer: PodsWriter, body: bytes) -> bytes:
    """The pods of a page that is nothing out of the ordinary; empty for any other."""
    try:
        pods = writer.write(PODS.decode_page(body))
    except UndecodableObject:
        return b""  # the daemon meets it, too, and has words for it
    return pods if len(pods) <= PLACE_BYTES else b""


def _go_first() -> None:
    """Where memory is short, the daemon can do without this process."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
