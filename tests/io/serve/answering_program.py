"""A program that answers questions, as the process beside the daemon does."""

from __future__ import annotations

import json
import sys
import time


def answer(text):
    """Answer each line: count it, refuse it, be slow about it, or end."""
    for number, line in enumerate(sys.stdin, 1):
        asked = json.loads(line)["ask"]
        if asked == "end":
            return
        if asked in {"sleep", "starts"}:  # a play of a large cluster
            time.sleep(60)
        said = {"answer": {"number": number, "options": text, "asked": asked}}
        if asked == "refuse":
            said = {"refused": {"status": 404, "reason": "NotFound", "message": "there is none"}}
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()
