"""Random lives of whole clusters, and what must hold in each: see ``live`` and ``story``."""

from gpusched.testing.histories.life import live
from gpusched.testing.histories.stories import story

__all__ = ["live", "story"]
