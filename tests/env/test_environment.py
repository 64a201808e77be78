import json
import threading
import time

import numpy as np
import pytest

from vclib.env.browser import Renderer
from vclib.env.environment import PROMPT, Observation, WebPageEnv
from vclib.env.errors import (
    BadArguments,
    EnvironmentFault,
    EpisodeDone,
    SessionExpired,
    TooLarge,
    TooManySessions,
    UnknownSession,
)
from vclib.env.pages import load_pages
from vclib.env.synth import DIFFICULTIES, SPLITS
from vclib.policy import prompts

PAGE = "blocks/train/easy/3"
DRAFT = '<!doctype html><body style="background:#dc2626"><p>Help</p></body>'


@pytest.fixture
def env(renderer):
    with WebPageEnv("blocks", renderer=renderer) as env:
        yield env


def html_of(page_id):
    return load_pages(page_id.partition("/")[0]).page(page_id).html


def same_pixels(a, b):
    return a.shape == b.shape and np.array_equal(a, b)


def test_reset_shows_the_page_and_the_task(env):
    seen = env.reset(page_id=PAGE)
    assert seen.screenshot.shape == (192, 256, 3) and seen.screenshot.dtype == np.uint8
    assert (seen.page_id, seen.difficulty) == (PAGE, "easy")
    assert (seen.step, seen.max_steps, seen.reward, seen.done) == (0, 5, None, False)
    assert seen.html is None and seen.render_low is None and seen.render_full is None
    assert seen.metadata["browser"] == env.renderer.browser


def test_the_environment_and_the_developer_state_the_task_in_the_same_words():
    assert PROMPT == prompts.TASK


def test_the_page_itself_scores_one_and_an_empty_page_nothing(env):
    session = env.reset(page_id=PAGE).session_id
    seen = env.step(html_of(PAGE), session)
    assert seen.reward == seen.metadata["rewards"]["total"] == 1
    assert same_pixels(seen.render_full, seen.screenshot)
    assert seen.html == html_of(PAGE) and seen.step == 1 and not seen.done
    assert env.step("<!doctype html><body></body>", session).reward == 0


def test_every_web_page_fills_its_viewport_and_scores_one_against_itself():
    page_set = load_pages("web")
    ids = {
        page_set.at(split, difficulty, index).id
        for split in SPLITS
        for difficulty in DIFFICULTIES
        for index in range(50)
    }
    with WebPageEnv(page_set) as env:
        resets = [env.reset(page_id=page_id) for page_id in sorted(ids)]
        seen = env.step_many([(html_of(r.page_id), r.session_id) for r in resets])
    for observation in seen:
        assert observation.metadata["error"] is None and not observation.metadata["blocked"]
        assert 480 <= observation.metadata["page_height"] <= 900, observation.page_id
        assert observation.reward == 1, observation.page_id
        assert observation.render_full.shape == (480, 640, 3)
        assert observation.render_low.shape == (384, 512, 3)


def test_an_episode_is_done_at_its_last_step_and_takes_no_more(env):
    seen = env.reset(page_id=PAGE, max_steps=2)
    assert not env.step(DRAFT, seen.session_id).done
    assert env.step(DRAFT, seen.session_id).done
    assert len(env.sessions) == 0
    with pytest.raises(EpisodeDone, match="reset begins a new episode") as error:
        env.step(DRAFT, seen.session_id)
    assert error.value.status == 409
    env.close_session(seen.session_id)


def test_an_unknown_and_a_closed_session_are_refused(env):
    closed = env.reset(page_id=PAGE).session_id
    env.close_session(closed)
    for session_id in ("nobody", "", closed):
        with pytest.raises(UnknownSession) as error:
            env.step(DRAFT, session_id)
        assert error.value.status == 404
        with pytest.raises(UnknownSession):
            env.close_session(session_id)


def test_a_session_that_nobody_uses_expires(renderer):
    with WebPageEnv(renderer=renderer, idle_seconds=0.2) as env:
        session = env.reset(page_id=PAGE).session_id
        assert len(env.sessions) == 1
        time.sleep(0.3)
        assert len(env.sessions) == 0
        with pytest.raises(SessionExpired, match=r"not used for 0\.2 s") as error:
            env.step(DRAFT, session)
        assert error.value.status == 410


def test_sessions_beyond_the_limit_are_refused_until_one_is_free(renderer):
    with WebPageEnv(renderer=renderer, max_sessions=2) as env:
        first, _ = env.reset(page_id=PAGE), env.reset(page_id=PAGE)
        with pytest.raises(TooManySessions) as error:
            env.reset(page_id=PAGE)
        assert error.value.status == 429
        env.close_session(first.session_id)
        assert env.reset(page_id=PAGE).step == 0


def test_interleaved_sessions_do_not_touch_each_other(env):
    pages = ["blocks/train/easy/1", "blocks/train/hard/2"]
    alone = []
    for page_id in pages:
        session = env.reset(page_id=page_id, max_steps=3).session_id
        alone.append([env.step(html, session).reward for html in (DRAFT, html_of(page_id), "")])
    sessions = [env.reset(page_id=page_id, max_steps=3).session_id for page_id in pages]
    together = [
        [env.step(html or html_of(page), s).reward for page, s in zip(pages, sessions, strict=True)]
        for html in (DRAFT, None)
    ]
    together.append([env.step("", session).reward for session in sessions])
    assert [list(rewards) for rewards in zip(*together, strict=True)] == alone


def test_step_many_gives_what_steps_one_by_one_give(env):
    pages = ["blocks/train/easy/1", "blocks/train/medium/2", "blocks/train/hard/3"]
    drafts = [(DRAFT, 0), (html_of(pages[1]), 1), ("no html at all", 2), (html_of(pages[0]), 0)]
    for _ in range(2):
        sessions = [env.reset(page_id=page_id).session_id for page_id in pages]
        actions = [(html, sessions[which]) for html, which in drafts]
        many = env.step_many(actions)
        sessions = [env.reset(page_id=page_id).session_id for page_id in pages]
        single = [env.step(html, sessions[which]) for html, which in drafts]
        for a, b in zip(many, single, strict=True):
            assert (a.page_id, a.step, a.reward, a.html) == (b.page_id, b.step, b.reward, b.html)
            assert a.metadata == b.metadata
            assert same_pixels(a.render_full, b.render_full)
    assert env.step_many([]) == []


def test_if_one_action_is_refused_none_is_taken(env):
    session = env.reset(page_id=PAGE, max_steps=2).session_id
    for actions in (
        [(DRAFT, session), (DRAFT, "nobody")],
        [(DRAFT, session)] * 3,
        [(DRAFT, session), ("x" * 2_000_000, session)],
    ):
        with pytest.raises((UnknownSession, EpisodeDone, TooLarge)):
            env.step_many(actions)
    assert env.state(session)["step"] == 0


def test_a_group_shares_one_page_which_is_rendered_once(renderer):
    rendered = []

    class Counting:
        """The renderer itself, with a note of what it is asked for."""

        def __getattr__(self, name):
            return getattr(renderer, name)

        def render_many(self, htmls):
            rendered.extend(htmls)
            return renderer.render_many(htmls)

    with WebPageEnv(renderer=Counting()) as env:
        group = [env.reset(page_id=PAGE) for _ in range(4)]
        assert rendered == [html_of(PAGE)]
    assert len({seen.session_id for seen in group}) == 4
    assert all(seen.screenshot is group[0].screenshot for seen in group)
    with pytest.raises(ValueError, match="read-only"):
        group[0].screenshot[:] = 0


def test_a_seed_names_a_page_and_resets_without_one_walk_through_them(renderer):
    def walk(**choice):
        with WebPageEnv(renderer=renderer, **choice) as env:
            return [env.reset().page_id for _ in range(4)]

    assert walk() == [f"blocks/train/{name}" for name in ("easy/0", "medium/0", "hard/0", "easy/1")]
    assert all(page_id.startswith("blocks/heldout/") for page_id in walk(split="heldout"))
    with WebPageEnv(renderer=renderer) as env:
        assert {env.reset("hard", seed=9).page_id for _ in range(3)} == {"blocks/train/hard/9"}
        assert env.reset("hard", page_id=PAGE, seed=9).page_id == PAGE


@pytest.mark.parametrize(
    "arguments",
    [
        {"difficulty": "brutal"},
        {"page_id": "web/train/easy/log-in"},
        {"seed": -1},
        {"seed": 10**30},
        {"max_steps": 0},
        {"max_steps": 101},
        {"max_steps": "5"},
    ],
)
def test_bad_arguments_of_reset_are_refused(env, arguments):
    with pytest.raises(BadArguments) as error:
        env.reset(**arguments)
    assert error.value.status == 422
    assert len(env.sessions) == 0


def test_bad_arguments_of_the_environment_are_refused(renderer):
    with pytest.raises(BadArguments, match="expected one of train, heldout"):
        WebPageEnv(renderer=renderer, split="test")
    with pytest.raises(BadArguments, match=r"256x192.*640x480"):
        WebPageEnv("web", renderer=renderer)


def test_html_that_cannot_be_shown_scores_nothing_and_says_why(env):
    session = env.reset(page_id=PAGE).session_id
    for html in ("<p>x</p>" * 40_000, '<p style="height:9999999px">tall'):
        seen = env.step(html, session)
        assert seen.reward == 0
        assert seen.metadata["error"] in seen.metadata["rewards"]["reason"]


def test_html_that_is_no_text_or_far_too_long_is_refused(env):
    session = env.reset(page_id=PAGE).session_id
    with pytest.raises(TooLarge) as error:
        env.step("é" * 600_000, session)
    assert error.value.status == 413
    for html in ("half \ud83d a smile", None, b"<p>"):
        with pytest.raises(BadArguments):
            env.step(html, session)
    assert env.state(session)["step"] == 0


def test_a_browser_that_is_gone_is_a_fault_and_not_a_score():
    with Renderer() as renderer, WebPageEnv(renderer=renderer) as env:
        session = env.reset(page_id=PAGE).session_id
        renderer.close()
        with pytest.raises(EnvironmentFault, match="nothing was scored") as error:
            env.step(DRAFT, session)
        assert error.value.status == 503
        assert env.state(session)["step"] == 0


def test_render_shows_html_and_scores_nothing(env):
    seen = env.render(html_of(PAGE))
    assert same_pixels(seen.render_full, env.reset(page_id=PAGE).screenshot)
    assert same_pixels(seen.render_low, seen.render_full)
    assert seen.reward is None and "rewards" not in seen.metadata
    assert len(env.sessions) == 1


def test_an_observation_survives_json_to_the_pixel(env):
    seen = env.step(DRAFT, env.reset(page_id=PAGE).session_id)
    back = Observation.from_json(json.loads(json.dumps(seen.to_json())))
    for name, value in vars(seen).items():
        if isinstance(value, np.ndarray):
            assert same_pixels(getattr(back, name), value)
        else:
            assert getattr(back, name) == value
    with pytest.raises(EnvironmentFault, match="no observation"):
        Observation.from_json({"hello": 1})


def test_threads_play_at_once_as_they_would_alone(env):
    pages = [f"blocks/train/medium/{n}" for n in range(6)]

    def play(page_id):
        session = env.reset(page_id=page_id, max_steps=2).session_id
        return [env.step(html, session).reward for html in (DRAFT, html_of(page_id))]

    alone = [play(page_id) for page_id in pages]
    together = {}
    threads = [
        threading.Thread(target=lambda p=page_id: together.update({p: play(p)}))
        for page_id in pages
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [together[page_id] for page_id in pages] == alone


def test_steps_at_once_in_one_session_are_taken_one_after_the_other(env):
    session = env.reset(page_id=PAGE, max_steps=3).session_id
    ends = []

    def step():
        try:
            ends.append(env.step(DRAFT, session).step)
        except EpisodeDone:
            ends.append(None)

    threads = [threading.Thread(target=step) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ends, key=str) == [1, 2, 3, None, None]
