"""Where the files are that come with the program but are no code: manifests, conf, scenarios.

In a checkout they lie beside the package; a wheel installs them under ``share/gpusched``.
"""

from __future__ import annotations

import sys
import sysconfig
from functools import cache
from pathlib import Path

from gpusched.base.errors import GpuschedError

_SHARED = Path("share") / "gpusched"


@cache  # A cluster asks with each start; expanding the schemes takes 0.2 ms each time.
def _roots(here: str, prefix: str) -> tuple[Path, ...]:
    """The places to look in, nearest first: a checkout wins over what is installed."""
    roots = []
    checkout = Path(here).resolve().parents[2]
    # Without this proof a folder called conf in site-packages would be taken for ours.
    if (checkout / "pyproject.toml").is_file():
        roots.append(checkout)
    schemes = (sysconfig.get_default_scheme(), sysconfig.get_preferred_scheme("user"))
    installed = [Path(prefix), *(Path(sysconfig.get_path("data", s)) for s in schemes)]
    roots.extend(each / _SHARED for each in installed)
    return tuple(dict.fromkeys(roots))


def path(name: str) -> Path:
    """The file or folder of that name, such as ``manifests/crds`` or ``conf/gpusched.yaml``.

    Raises:
        GpuschedError: it is in none of the places; the sentence names them.
    """
    roots = _roots(__file__, sys.prefix)
    for root in roots:
        candidate = root / name
        if candidate.exists():
            return candidate
    looked = ", ".join(str(root) for root in roots)
    raise GpuschedError(
        f"{name} is missing from this installation of gpusched (looked in {looked}): "
        "install it again, or run from a checkout"
    )
