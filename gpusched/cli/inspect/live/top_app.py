"""The screen of ``top``: keys and the terminal. What stands on it is drawn by ``screen``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar, Final, Protocol

import attrs
from rich.text import Text
from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input

from gpusched.base.clock import Clock
from gpusched.base.errors import GpuschedError
from gpusched.cli.inspect.live.screen.cluster_map import gangs_on_map
from gpusched.cli.inspect.live.screen.compose import (
    GUTTER,
    ScreenPlace,
    can_open,
    compose_screen,
    move_place,
    rows_that_fit,
    settle_place,
)
from gpusched.cli.inspect.live.screen.gang_page import draw_gang, draw_reason
from gpusched.cli.inspect.live.screen.gpu_map import number_gangs
from gpusched.cli.inspect.live.screen.list_views import ORDERS, QUEUE_WORD
from gpusched.cli.inspect.live.screen.picture import (
    VIEWS,
    ClusterPicture,
    DrawnView,
    ScreenChoice,
    draw_header,
    shown_text,
)
from gpusched.cli.inspect.live.screen.views import draw_footer, draw_help, draw_tabs, draw_view
from gpusched.view.gang_story import GangStory
from gpusched.view.model import WAITING

_REDRAW_S: Final = 0.1
"""Changes that come within so long are drawn at once."""
_REST: Final = 4
"""After a drawing that took long so many times as long passes until the next one, unless a key asks for it."""
_AGES_S: Final = 1.0
_WHEEL: Final = 3
_DETAIL_PART: Final = 8
"""The reason of the row under the cursor gets an eighth of the lines at most."""
_TALL: Final = 30
"""Lines from which on one is left free above the rows."""
_FAR: Final = 1 << 40


class FollowedSource(Protocol):
    """Where the picture comes from."""

    changed: Callable[[], None]

    def picture(self) -> ClusterPicture:
        """How things stand."""

    def run(self) -> Coroutine[Any, Any, None]:
        """Keep it so until cancelled."""

    def story(self, gang: str) -> Coroutine[Any, Any, GangStory | None]:
        """One gang."""


class TopScreen(Widget):
    """All lines but that of the prompt; they are texts, so that nothing in them is markup."""

    DEFAULT_CSS = "TopScreen { width: 1fr; height: 1fr; }"
    can_focus = True

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[Text] = []

    def show(self, lines: list[Text]) -> None:
        """Show these lines."""
        self._lines = lines
        self.refresh()

    def text(self) -> str:
        """What stands there, without colours."""
        return "\n".join(line.plain for line in self._lines)

    def render_line(self, y: int) -> Strip:
        """One line, as Textual asks for it."""
        line = self._lines[y] if y < len(self._lines) else Text()
        segments = line.render(self.app.console, end="")
        return Strip(segments).adjust_cell_length(self.size.width)


class TopApp(App[None]):
    """Shows a source until somebody quits.

    Args:
        source: of pictures; it runs as long as the screen is there.
        choice: what is shown first.
        clock: measures how long drawing takes.

    Attributes:
        choice: what is shown.
        opened: the gang whose story is shown, as ``NAMESPACE/KIND/NAME``; empty for none.
        fault: what ended the following, None where nothing did.
    """

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { background: ansi_default; color: ansi_default; }
    TopScreen { background: ansi_default; color: ansi_default; }
    Input { dock: bottom; height: 1; border: none; padding: 0; display: none;
            background: ansi_default; color: ansi_default; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit"),
        Binding("ctrl+c", "quit", priority=True),
        *(Binding(str(number), f"view({view!r})") for number, view in enumerate(VIEWS, start=1)),
        Binding("tab", "next_view(1)", priority=True),
        Binding("right,l", "next_view(1)"),
        Binding("shift+tab", "next_view(-1)", priority=True),
        Binding("left,h", "next_view(-1)"),
        Binding("down,j", "move(1)"),
        Binding("up,k", "move(-1)"),
        Binding("pagedown,space", "page(1)"),
        Binding("pageup", "page(-1)"),
        Binding("home,g", f"move(-{_FAR})"),
        Binding("end,G", f"move({_FAR})"),
        Binding("enter", "open"),
        Binding("escape", "leave"),
        Binding("slash", "ask('filter')"),
        Binding("n", "ask('namespace')"),
        Binding("s", "sort"),
        Binding("r", "turn"),
        Binding("question_mark", "help"),
    ]

    def __init__(self, source: FollowedSource, choice: ScreenChoice, clock: Clock) -> None:
        super().__init__(ansi_color=True)
        self._source = source
        self._clock = clock
        self.choice = choice
        self.opened = ""
        self.fault: BaseException | None = None
        self._story: GangStory | None = None
        self._story_of: object = None
        self._trouble = ""
        self._helps = False
        self._picture = source.picture()
        self._numbers: dict[str, int] = {}
        self._lines = TopScreen()
        self._prompt = Input(select_on_focus=False)
        self._drawn = DrawnView(lines=[], keys=[])
        self._place = ScreenPlace()
        self._places: dict[str, ScreenPlace] = {}
        self._room = 1
        self._due = False
        self._took_s = 0.0
        self._asked = ""
        self._following: asyncio.Task[None] | None = None

    def compose(self) -> ComposeResult:
        """The lines, and a prompt that is seen while something is typed."""
        yield self._lines
        yield self._prompt

    async def on_mount(self) -> None:
        """Begin to follow."""
        self._lines.focus()
        self._following = asyncio.create_task(self._source.run(), name="what changes")
        self._following.add_done_callback(self._ended)
        self._source.changed = self._note_change
        self.set_interval(_AGES_S, self._note_change)

    async def on_unmount(self) -> None:
        """Follow no more."""
        following = self._following
        if following is None:
            return
        following.cancel()
        await asyncio.wait([following])

    def on_resize(self) -> None:
        """Draw it for the new size."""
        self.call_after_refresh(self.redraw)

    # -- drawing ---------------------------------------------------------------------------
    def redraw(self) -> None:
        """Draw what is known now."""
        began = self._clock.monotonic()
        self._draw_all()
        self._took_s = self._clock.monotonic() - began

    def _draw_all(self) -> None:
        self._due = False
        size = self._lines.size
        if not size.width or not size.height:
            return
        self._picture = picture = self._source.picture()
        self._numbers = number_gangs(self._numbers, gangs_on_map(picture.nodes))
        choice = attrs.evolve(self.choice, width=max(1, size.width - GUTTER), numbers=self._numbers)
        above = self._lines_above(choice, size.width)
        above += [Text()] if size.height >= _TALL else []
        self._drawn = self._draw(choice)
        footer = draw_footer(
            attrs.evolve(choice, width=size.width),
            self._order(),
            of_page=self._helps or bool(self.opened),
        )
        below = [*self._detail(size), footer]
        self._room = rows_that_fit(above, self._drawn, below, height=size.height)
        self._place = settle_place(self._place, self._drawn, room=self._room)
        self._lines.show(compose_screen(above, self._drawn, below, self._place, height=size.height))
        self._read_story_again()

    def _lines_above(self, choice: ScreenChoice, width: int) -> list[Text]:
        wide = attrs.evolve(choice, width=width)
        return [*draw_header(self._picture, wide), draw_tabs(self._picture, wide)]

    def _draw(self, choice: ScreenChoice) -> DrawnView:
        if self._helps:
            return draw_help(choice)
        if not self.opened:
            return draw_view(self._picture, choice)
        told = []
        if self._trouble:
            told.append(Text(self._trouble, "bold red"))
        if self._gang() is None:
            told.append(Text("It neither waits nor runs any more.", "bold yellow"))
        if self._story is None:
            told.append(Text(f"{shown_text(self.opened)} is being read" if not told else ""))
            return DrawnView(lines=told, keys=[""] * len(told))
        drawn = draw_gang(self._story, self._picture, choice)
        return DrawnView(lines=[*told, *drawn.lines], keys=[""] * (len(told) + len(drawn.lines)))

    def _detail(self, size: Size) -> list[Text]:
        """Why the gang under the cursor waits: a row has room for the beginning alone."""
        name = self._place.key.partition(" ")[2]
        gang = next((each for each in self._picture.gangs if each.key == name), None)
        if gang is None or self.opened or self._helps or gang.state != WAITING:
            return []
        lines = draw_reason(gang, width=size.width)[: max(1, size.height // _DETAIL_PART)]
        return [Text(), *lines]

    def _order(self) -> str:
        orders = ORDERS.get(self.choice.view)
        if orders is None or self.opened or self._helps:
            return ""
        return self.choice.order or next(iter(orders))

    def _note_change(self) -> None:
        if not self._due:
            self._due = True
            self.set_timer(max(_REDRAW_S, _REST * self._took_s), self.redraw)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Following ends with an error alone, which is a bug: it is told when the screen is gone."""
        if not task.cancelled():
            self.fault = task.exception()
            self.exit()

    # -- one gang --------------------------------------------------------------------------
    def _gang(self) -> object:
        return next((gang for gang in self._picture.gangs if gang.key == self.opened), None)

    def _read_story_again(self) -> None:
        """Ask for the story of the opened gang where it changed since."""
        if not self.opened:
            return
        decided = [
            each
            for each in self._picture.decisions
            if f"{each.gang.namespace}/{each.gang.kind}/{each.gang.name}" == self.opened
        ]
        state = (self.opened, self._gang(), len(decided), decided[-1:])
        if state != self._story_of and (self._story is None or state[1] is not None):
            self._story_of = state
            self.run_worker(self._read_story(self.opened), exclusive=True, exit_on_error=True)

    async def _read_story(self, gang: str) -> None:
        try:
            story = await self._source.story(gang)
        except GpuschedError as error:
            self._trouble = shown_text(str(error))
        else:
            self._trouble = ""
            if gang == self.opened and story is not None:
                self._story = story
        self.redraw()

    # -- keys ------------------------------------------------------------------------------
    def action_view(self, view: str) -> None:
        """Another view."""
        self._places[self.choice.view] = self._place if not self.opened else ScreenPlace()
        self.opened, self._story, self._helps = "", None, False
        if view != self.choice.view:
            self.choice = attrs.evolve(self.choice, view=view, order="", backwards=False, typed="")
        self._place = self._places.get(view, ScreenPlace())
        self.redraw()

    def action_next_view(self, step: int) -> None:
        """The view beside this one."""
        if self._asked:
            return
        at = VIEWS.index(self.choice.view)
        self.action_view(VIEWS[(at + step) % len(VIEWS)])

    def action_move(self, steps: int) -> None:
        """Rows down or up."""
        self._place = move_place(self._place, self._drawn, steps, room=self._room)
        self.redraw()

    def action_page(self, pages: int) -> None:
        """A screen of rows down or up."""
        self.action_move(pages * self._room)

    def action_open(self) -> None:
        """What the cursor's row is about."""
        kind, _, name = self._place.key.partition(" ")
        if self.opened or self._helps or not can_open(self._drawn) or not name:
            return
        if kind == "queue":
            self.action_view("waiting")
            self.choice = attrs.evolve(self.choice, typed=f"{QUEUE_WORD}{name}")
        else:
            self._places[self.choice.view] = self._place
            self.opened, self._story, self._story_of, self._trouble = name, None, None, ""
            self._place = ScreenPlace()
        self.redraw()

    def action_leave(self) -> None:
        """Out of help or a story, else without a filter."""
        if self._helps:
            self._helps = False
        elif self.opened:
            self.opened, self._story = "", None
            self._place = self._places.get(self.choice.view, ScreenPlace())
        else:
            self.choice = attrs.evolve(self.choice, typed="")
        self.redraw()

    def action_sort(self) -> None:
        """By the next of the view's orders."""
        orders = list(ORDERS.get(self.choice.view, ()))
        if orders:
            at = orders.index(self.choice.order or orders[0])
            self.choice = attrs.evolve(self.choice, order=orders[(at + 1) % len(orders)])
        self.redraw()

    def action_turn(self) -> None:
        """The other way round."""
        self.choice = attrs.evolve(self.choice, backwards=not self.choice.backwards)
        self.redraw()

    def action_help(self) -> None:
        """The keys."""
        self._helps = not self._helps
        self.redraw()

    # -- the prompt ------------------------------------------------------------------------
    def action_ask(self, what: str) -> None:
        """Open the prompt for a filter or a namespace."""
        self._asked = what
        prompt = self._prompt
        told = {"filter": "words that rows must have", "namespace": "namespace; nothing means all"}
        prompt.placeholder = told[what]
        prompt.value = self.choice.typed if what == "filter" else self.choice.namespace
        prompt.display = True
        prompt.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """A filter counts while it is typed."""
        if self._asked == "filter":
            self.choice = attrs.evolve(self.choice, typed=event.value)
            self.redraw()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """What was typed counts."""
        if self._asked == "namespace":
            self.choice = attrs.evolve(self.choice, namespace=event.value.strip())
        self._close_prompt()

    async def on_key(self, event: events.Key) -> None:
        """Escape leaves the prompt, and a filter with it."""
        if self._asked and event.key == "escape":
            event.stop()
            event.prevent_default()
            if self._asked == "filter":
                self.choice = attrs.evolve(self.choice, typed="")
            self._close_prompt()

    def _close_prompt(self) -> None:
        self._asked = ""
        self._prompt.display = False
        self._lines.focus()
        self.call_after_refresh(self.redraw)

    # -- the mouse -------------------------------------------------------------------------
    def on_mouse_scroll_down(self) -> None:
        """The wheel moves the cursor."""
        self.action_move(_WHEEL)

    def on_mouse_scroll_up(self) -> None:
        """The wheel moves the cursor."""
        self.action_move(-_WHEEL)
