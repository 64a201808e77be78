"""The episode protocol: a page to reproduce, a few attempts at it, a reward after each."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from numbers import Integral
from typing import Any, Literal

from vclib.env.browser import Render, Renderer
from vclib.env.clip import load_clip
from vclib.env.errors import BadArguments, EnvironmentFault, TooLarge
from vclib.env.look import Embed
from vclib.env.observation import Observation, shrink
from vclib.env.pages import MIXED, Page, PageSet, load_pages, one_of
from vclib.env.reward import Breakdown, Reference, score
from vclib.env.sessions import Session, Sessions
from vclib.env.synth import DIFFICULTIES, SPLITS

PROMPT = (
    "Write one HTML document that looks like this screenshot. "
    "Answer with the raw HTML only, from the doctype to the closing tag."
)
MAX_STEPS = 100
MAX_HTML_BYTES = 1_000_000
KEPT_REFERENCES = 128
PROBE = "<!doctype html><title>probe</title><p>probe</p>"


class WebPageEnv:
    """Episodes on the pages of one set, rendered by one browser; safe to call from many threads.

    pages: a page set or its name; split: `train` or `heldout`, for pages that are not asked for by
    id; renderer: one to share, else the environment makes its own and closes it; max_steps: steps
    per episode; max_sessions: episodes in progress; idle_seconds: after which one is given up;
    clip: an image embedding for that part of the reward, or None to leave it out. By default it is
    CLIP's if its weights are on this machine, but none on `blocks` pages, whose rewards are thus
    the same everywhere. Every error is an EnvError that says what to do.
    """

    def __init__(
        self,
        pages: str | PageSet = "blocks",
        *,
        split: str = "train",
        renderer: Renderer | None = None,
        max_steps: int = 5,
        max_sessions: int = 4096,
        idle_seconds: float = 3600,
        clip: Embed | Literal["cached"] | None = "cached",
    ):
        self.pages = load_pages(pages) if isinstance(pages, str) else pages
        if clip == "cached":
            clip = None if self.pages.name == "blocks" else load_clip()
        self.clip = clip
        one_of("split", split, SPLITS)
        width, height = self.pages.viewport
        if renderer is not None and (renderer.width, renderer.height) != (width, height):
            raise BadArguments(
                f"the renderer's viewport is {renderer.width}x{renderer.height}, but the pages of "
                f"{self.pages.name} are made for {width}x{height}: use Renderer({width}, {height})"
            )
        self.split = split
        self.max_steps = _checked_steps(max_steps)
        self.sessions = Sessions(max_sessions, idle_seconds)
        self.renderer = renderer or Renderer(width, height)
        self._owns_renderer = renderer is None
        self._lock = threading.Lock()
        self._references: OrderedDict[str, Future[Reference]] = OrderedDict()
        self._turns: Counter[str] = Counter()

    def reset(
        self,
        difficulty: str = "mixed",
        page_id: str | None = None,
        seed: int | None = None,
        max_steps: int | None = None,
    ) -> Observation:
        """Begin an episode on one page: the one named, else number `seed`, else the next."""
        page = self._choose(difficulty, page_id, seed)
        steps = self.max_steps if max_steps is None else _checked_steps(max_steps)
        reference = self._reference(page)
        return self._observe(self.sessions.open(page, steps), reference)

    def step(self, html: str, session_id: str) -> Observation:
        """Render and score one attempt; `done` at the last. See `step_many` for errors."""
        return self.step_many([(html, session_id)])[0]

    def step_many(self, actions: Sequence[tuple[str, str]]) -> list[Observation]:
        """Steps in many sessions, as if one by one, but rendered side by side.

        `actions` are (html, session id). If one is refused (UnknownSession, SessionExpired,
        EpisodeDone, TooLarge, BadArguments) or the browser fails (EnvironmentFault), none is
        taken.
        """
        for html, _ in actions:
            _check_html(html)
        with ExitStack() as stack:
            sessions = self.sessions.hold(Counter(session_id for _, session_id in actions), stack)
            taken = [sessions[session_id] for _, session_id in actions]
            renders = self._render([html for html, _ in actions])
            references = [self._reference(session.page) for session in taken]
            scores = [
                score(*sides, clip=self.clip) for sides in zip(references, renders, strict=True)
            ]
            return [
                self._take_step(*step)
                for step in zip(taken, references, renders, scores, strict=True)
            ]

    def render(self, html: str) -> Observation:
        """What some HTML looks like; scores nothing and belongs to no session."""
        _check_html(html)
        (render,) = self._render([html])
        seen = Observation("", "", "", "", render.pixels, html=html)
        return self._with_render(seen, render)

    def close_session(self, session_id: str) -> None:
        """Give a session up. One that has ended by itself is closed already."""
        self.sessions.close(session_id)

    def state(self, session_id: str) -> dict[str, Any]:
        """Where a session in progress stands: page, steps taken, last reward."""
        session = self.sessions.find(session_id)
        return {
            "session_id": session.id,
            "page_id": session.page.id,
            "difficulty": session.page.difficulty,
            "step": session.step,
            "max_steps": session.max_steps,
            "reward": session.reward,
        }

    def close(self) -> None:
        """Forget all sessions, and end the browser if it is the environment's own."""
        self.sessions.clear()
        if self._owns_renderer:
            self.renderer.close()

    def __enter__(self) -> WebPageEnv:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _choose(self, difficulty: str, page_id: str | None, seed: int | None) -> Page:
        if page_id is not None:
            return self.pages.page(page_id)
        if seed is None:
            one_of("difficulty", difficulty, (*DIFFICULTIES, MIXED))
            with self._lock:
                seed = self._turns[difficulty]
                self._turns[difficulty] += 1
        return self.pages.at(self.split, difficulty, seed)

    def _reference(self, page: Page) -> Reference:
        """The reference side of a page, made once however many threads ask for it at once."""
        with self._lock:
            future = self._references.get(page.id)
            first = future is None
            if future is None:
                future = self._references[page.id] = Future()
                if len(self._references) > KEPT_REFERENCES:
                    self._references.popitem(last=False)
            else:
                self._references.move_to_end(page.id)
        if first:
            try:
                future.set_result(self._make_reference(page))
            except BaseException as error:
                with self._lock:
                    self._references.pop(page.id, None)
                future.set_exception(error)
        return future.result()

    def _make_reference(self, page: Page) -> Reference:
        (render,) = self._render([page.html])
        if render.error:
            raise BadArguments(f"page {page.id} cannot be shown ({render.error}); choose another")
        # Every observation of the page shares these pixels.
        render.pixels.flags.writeable = False
        return Reference(render)

    def _render(self, htmls: Sequence[str]) -> list[Render]:
        """Renders, or EnvironmentFault: a page that fails scores 0, a browser that fails does not.

        Whose fault it was shows in whether the browser still renders a harmless page.
        """
        try:
            renders = self.renderer.render_many(htmls)
            failed = any(render.error for render in renders)
            fault = self.renderer.render(PROBE).error if failed else None
        # Renderer raises nothing for a bad page, so whatever it raises is a fault.
        except Exception as error:
            raise EnvironmentFault(f"the browser failed, nothing was scored: {error}") from error
        if fault:
            raise EnvironmentFault(f"the browser failed, nothing was scored: {fault}")
        return renders

    def _take_step(
        self, session: Session, reference: Reference, render: Render, breakdown: Breakdown
    ) -> Observation:
        done = self.sessions.advance(session, breakdown.total)
        seen = self._observe(session, reference)
        seen.html, seen.reward, seen.done = render.html, breakdown.total, done
        seen.metadata["rewards"] = breakdown.as_dict()
        return self._with_render(seen, render)

    def _observe(self, session: Session, reference: Reference) -> Observation:
        return Observation(
            session_id=session.id,
            page_id=session.page.id,
            difficulty=session.page.difficulty,
            prompt=PROMPT,
            screenshot=reference.render.pixels,
            step=session.step,
            max_steps=session.max_steps,
            metadata={"pages": self.pages.name, "browser": self.renderer.browser},
        )

    def _with_render(self, seen: Observation, render: Render) -> Observation:
        seen.render_full, seen.render_low = render.pixels, shrink(render.pixels)
        seen.metadata |= {
            "browser": self.renderer.browser,
            "error": render.error,
            "blocked": list(render.blocked),
            "page_height": render.page_height,
        }
        return seen


def _checked_steps(steps: int) -> int:
    if not isinstance(steps, Integral) or not 1 <= steps <= MAX_STEPS:
        raise BadArguments(f"max_steps {steps!r:.80} is not a whole number from 1 to {MAX_STEPS}")
    return int(steps)


def _check_html(html: str) -> None:
    if not isinstance(html, str):
        raise BadArguments(f"html is {type(html).__name__}, expected str")
    try:
        size = len(html.encode())
    except UnicodeEncodeError as error:
        raise BadArguments("html holds half a surrogate pair, which is no character") from error
    if size > MAX_HTML_BYTES:
        raise TooLarge(f"html has {size} bytes; at most {MAX_HTML_BYTES} are taken")
