"""Random lives of whole clusters, and what must hold in each: see ``live`` and ``story``."""

from tests.behaviour.histories.life import run_history
from tests.behaviour.histories.stories import draw_story

__all__ = ["draw_story", "run_history"]
