"""How well a small model does its three jobs on held-out `blocks` pages.

    python benchmarks/tiny_jobs.py [--model data/models/vc-tiny] [--count 150] [--output FILE]

write: token accuracy against careful demonstrations, and the reward of what is rendered.
revise: reward before and after, given the true critique of a careless draft; and whether the words
of the critique are followed: if it names half of what a careful draft lacks, which half is mended?
criticise: precision and recall of the true differences named, and whether DONE is right.
Chance is measured beside each: the same answers given to the wrong pages.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vclib.env.browser import Renderer
from vclib.env.reward import Reference, score
from vclib.env.synth import (
    DIFFICULTIES,
    VIEWPORT,
    BlockPage,
    draw_page,
    parse_html,
    to_html,
)
from vclib.paths import TINY
from vclib.policy import prompts
from vclib.policy.model import Policy
from vclib.policy.sampling import SamplingSettings, sample
from vclib.rl import demonstrations as demos
from vclib.rl.examples import Example, collate
from vclib.rl.pretrain import answer_loss

BATCH = 48


def main() -> None:
    """Measure, print, and write the figures down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=str(TINY))
    parser.add_argument("--count", type=int, default=150, help="held-out pages, default 150")
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--output", help="write the figures to this JSON file")
    options = parser.parse_args()
    policy = Policy.load(options.model)
    with Renderer(*VIEWPORT) as renderer:
        figures = measure(policy, renderer, options.count, options.temperature)
    text = json.dumps(figures, indent=2)
    print(text)
    if options.output:
        Path(options.output).write_text(text + "\n")


def measure(policy: Policy, renderer: Renderer, count: int, temperature: float) -> dict[str, Any]:
    """Figures of the three jobs over `count` held-out pages, a third of each difficulty."""
    rng = random.Random("tiny-jobs")
    pages = [draw_page("heldout", DIFFICULTIES[i % 3], i) for i in range(count)]
    drafts = [demos.write(page, demos.choose(demos.WRITERS, rng), rng) for page in pages]
    drafts[::5] = pages[::5]
    layouts = [demos.write(page, "careful", rng) for page in pages]
    renders = renderer.render_many([to_html(page) for page in pages])
    references = [Reference(render) for render in renders]
    draft_renders = renderer.render_many([to_html(draft) for draft in drafts])
    truth = [demos.differences(*pair) for pair in zip(pages, drafts, strict=True)]

    def rewards(htmls: list[str]) -> np.ndarray:
        candidates = renderer.render_many(htmls)
        pairs = zip(references, candidates, strict=True)
        return np.array([score(reference, render).total for reference, render in pairs])

    def answers(messages: list[prompts.Messages], greedy: bool, stop: tuple[str, ...]) -> list[str]:
        settings = SamplingSettings(
            temperature=temperature, greedy=greedy, max_new_tokens=160, stop=stop
        )
        encoded = [policy.encode(message) for message in messages]
        luck = torch.Generator().manual_seed(0)
        texts = []
        for start in range(0, len(encoded), BATCH):
            batch = encoded[start : start + BATCH]
            texts += [s.text for s in sample(policy, batch, None, settings, luck)]
        return texts

    figures: dict[str, Any] = {"model": "vc-tiny", "pages": count, "temperature": temperature}
    careful = [
        Example("write", [r.pixels], prompts.developer_first(r.pixels), to_html(layout))
        for layout, r in zip(layouts, renders, strict=True)
    ]
    with torch.no_grad(), policy.acting(None):
        parts = [careful[start : start + BATCH] for start in range(0, count, BATCH)]
        scores = [answer_loss(policy.base, collate(part, policy.processor)) for part in parts]
    asked_for = [
        demos.critique(demos.differences(*pair)) for pair in zip(pages, layouts, strict=True)
    ]
    mended = [to_html(demos.apply(*pair)) for pair in zip(layouts, asked_for, strict=True)]
    figures["write"] = {
        "careful_layout": float(rewards([to_html(layout) for layout in layouts]).mean()),
        "careful_layout_mended": float(rewards(mended).mean()),
        "token_loss": float(np.mean([loss.item() for loss, _ in scores])),
        "token_accuracy": float(np.mean([accuracy for _, accuracy in scores])),
    }
    first = [prompts.developer_first(r.pixels) for r in renders]
    for name, greedy in (("sampled", False), ("greedy", True)):
        texts = answers(first, greedy, ("</html>",))
        values = rewards(texts)
        figures["write"][name] = _by_difficulty(values)
        figures["write"][f"{name}_chance"] = float(rewards(texts[3:] + texts[:3]).mean())

    critiques = [demos.critique(lines) for lines in truth]
    asked = [i for i, lines in enumerate(truth) if lines]
    before = rewards([to_html(draft) for draft in drafts])
    revision = [
        prompts.developer_revision(to_html(draft), text)
        for draft, text in zip(drafts, critiques, strict=True)
    ]
    true_after = rewards(
        [to_html(demos.apply(draft, c)) for draft, c in zip(drafts, critiques, strict=True)]
    )
    figures["revise"] = {
        "before": float(before[asked].mean()),
        "critique_followed_exactly": float(true_after[asked].mean()),
    }
    for name, greedy in (("sampled", False), ("greedy", True)):
        after = rewards(answers(revision, greedy, ("</html>",)))
        figures["revise"][name] = float(after[asked].mean())

    lacking = [demos.differences(*pair) for pair in zip(pages, layouts, strict=True)]
    halves = [min((len(lines) + 1) // 2, demos.MOST_LINES) for lines in lacking]
    named = [
        sorted(rng.sample(range(len(lines)), half))
        for lines, half in zip(lacking, halves, strict=True)
    ]
    partly = [
        prompts.developer_revision(to_html(layout), demos.critique([lines[i] for i in n]))
        for layout, lines, n in zip(layouts, lacking, named, strict=True)
    ]
    for name, greedy in (("sampled", False), ("greedy", True)):
        revised = [parse_html(text) for text in answers(partly, greedy, ("</html>",))]
        figures[f"follow_{name}"] = _followed(pages, lacking, named, revised)

    look = [
        prompts.critic_first(r.pixels, d.pixels)
        for r, d in zip(renders, draft_renders, strict=True)
    ]
    for name, greedy in (("sampled", False), ("greedy", True)):
        said = [text.splitlines() for text in answers(look, greedy, ())]
        shifted = said[3:] + said[:3]
        figures[f"criticise_{name}"] = {
            **_named(truth, said),
            **{f"{key}_chance": value for key, value in _named(truth, shifted).items()},
        }
    return figures


def _followed(
    pages: list[BlockPage],
    lacking: list[list[str]],
    named: list[list[int]],
    revised: list[BlockPage | None],
) -> dict[str, float]:
    """The shares of the differences that were mended: of those named, and of those not named."""
    mended: dict[bool, list[bool]] = {True: [], False: []}
    for page, lines, asked, revision in zip(pages, lacking, named, revised, strict=True):
        left = demos.differences(page, revision) if revision else lines
        for i, line in enumerate(lines):
            mended[i in asked].append(not _left(line, left))
    return {"named": float(np.mean(mended[True])), "not_named": float(np.mean(mended[False]))}


def _left(line: str, left: list[str]) -> bool:
    """Whether a difference is still there, by itself or in a row that is wrong as a whole."""
    row = " ".join(line.partition(":")[0].split()[:2])
    return line in left or any(other.startswith(f"{row}: ") and "px:" in other for other in left)


def _by_difficulty(values: np.ndarray) -> dict[str, float]:
    named = {name: float(values[i::3].mean()) for i, name in enumerate(DIFFICULTIES)}
    return {"mean": float(values.mean()), **named}


def _named(truth: list[list[str]], said: list[list[str]]) -> dict[str, float]:
    hits = sum(len(set(lines) & set(words)) for lines, words in zip(truth, said, strict=True))
    claims = sum(len([w for w in words if w != demos.DONE]) for words in said)
    wanted = sum(min(len(lines), demos.MOST_LINES) for lines in truth)
    done = [words == [demos.DONE] for words in said]
    right = [d for d, lines in zip(done, truth, strict=True) if not lines]
    early = [d for d, lines in zip(done, truth, strict=True) if lines]
    return {
        "precision": hits / max(1, claims),
        "recall": hits / max(1, wanted),
        "done_when_equal": float(np.mean(right)) if right else 0.0,
        "done_too_early": float(np.mean(early)) if early else 0.0,
    }


if __name__ == "__main__":
    main()
