"""The browser outlives what is done to it: kills, load, and thousands of pages."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import psutil
import pytest
from env_memory import megabytes

from vclib.env.browser import Renderer
from vclib.env.environment import WebPageEnv
from vclib.env.pages import load_pages
from vclib.env.synth import DIFFICULTIES, SPLITS

CLIENTS = 8


def browsers() -> list[psutil.Process]:
    """The browsers that this process has started, without the processes that these have."""
    return [
        child for child in psutil.Process().children() if "--remote-debugging-pipe" in line(child)
    ]


def line(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def killed(kills: int) -> None:
    """Eight clients at work while a browser, any that runs, is killed so many times.

    Every step is taken and has the reward that it has in peace, and no process is left.
    """
    before = set(browsers())
    chance = random.Random(kills)
    with WebPageEnv("blocks", max_steps=100) as env:
        jobs = [
            (page, env.pages.page(page).html)
            for page in (f"blocks/train/easy/{i}" for i in range(CLIENTS))
        ]
        jobs = [(page, html.replace("#", "#1", 1)) for page, html in jobs]
        peace = [env.step(html, env.reset(page_id=page).session_id).reward for page, html in jobs]
        over = threading.Event()

        def client(number: int) -> list[float | None]:
            page, html = jobs[number]
            rewards, session = [], env.reset(page_id=page).session_id
            while not over.is_set():
                seen = env.step(html, session)
                rewards.append(seen.reward)
                if seen.done:
                    session = env.reset(page_id=page).session_id
            return rewards

        with ThreadPoolExecutor(CLIENTS) as pool:
            clients = [pool.submit(client, number) for number in range(CLIENTS)]
            try:
                for _ in range(kills):
                    time.sleep(chance.uniform(0.1, 1.5))
                    while not (running := [b for b in browsers() if b not in before]):
                        time.sleep(0.01)
                    chance.choice(running).kill()
            finally:
                over.set()
            for number, rewards in enumerate(done.result() for done in clients):
                assert rewards and set(rewards) == {peace[number]}
        started = [b for b in browsers() if b not in before]
        inside = [p for b in started for p in b.children(recursive=True)]
    _, alive = psutil.wait_procs([*started, *inside], timeout=20)
    assert not alive
    assert not [b for b in browsers() if b not in before]
    zombies = [p for p in psutil.Process().children() if p.status() == psutil.STATUS_ZOMBIE]
    assert not zombies


def test_killing_the_browser_at_random_costs_no_step() -> None:
    killed(5)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_killing_the_browser_a_hundred_times_costs_no_step() -> None:
    killed(100)


@contextmanager
def load(processes: int) -> Iterator[None]:
    """So many other programs that never rest."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for program in busy:
            program.kill()
            program.wait()


def sample_pages() -> list[str]:
    web = load_pages("web")
    return [web.at(split, difficulty, 0).html for split in SPLITS for difficulty in DIFFICULTIES]


def same_pixels(fresh: int, repeats: int) -> None:
    """Fresh browsers, and repeats in each of them, side by side and under load."""
    pages = sample_pages()
    expected: list[np.ndarray] = []
    for _ in range(fresh):
        with load(2), Renderer(640, 480, concurrency=3, timeout=60) as renderer:
            renders = renderer.render_many(pages * repeats)
        assert all(render.error is None for render in renders)
        expected = expected or [render.pixels for render in renders[: len(pages)]]
        for i, render in enumerate(renders):
            assert np.array_equal(render.pixels, expected[i % len(pages)])


def test_pixels_are_the_same_in_fresh_browsers_under_load() -> None:
    same_pixels(fresh=2, repeats=3)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_pixels_are_the_same_twenty_times_in_fresh_browsers_under_load() -> None:
    same_pixels(fresh=20, repeats=2)


@pytest.mark.long
def test_memory_does_not_grow_with_the_pages_shown() -> None:
    pages = sample_pages()
    with Renderer(640, 480, timeout=60) as renderer:
        taken = []
        for _ in range(16):
            renderer.render_many([page for page in pages for _ in range(10)])
            taken.append(sum(megabytes(renderer)))
    # A tab collects its garbage after some 400 pages; one that stayed would add 1.2 MB.
    assert max(taken[12:]) - max(taken[4:12]) < 30, taken
