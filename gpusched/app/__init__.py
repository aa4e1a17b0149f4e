"""One daemon: how it is run (``options``), what stands for its Leases (``candidate``), its life (``daemon``)."""

from gpusched.app.daemon import App
from gpusched.app.options import AppOptions

__all__ = ["App", "AppOptions"]
