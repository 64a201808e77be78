"""Examples for pre-training: demonstrations drawn as it goes, and batches of them as tensors."""

from __future__ import annotations

import multiprocessing
import queue
import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from vclib.env.sheet import Sheet
from vclib.env.synth import (
    DIFFICULTIES,
    LONG,
    SHORT,
    WORDS,
    BlockPage,
    parse_html,
    random_page,
    split_of,
    to_html,
)
from vclib.policy import prompts
from vclib.rl import demonstrations as demos

JOBS = ("write", "revise", "criticise")
LESSONS = {"eyes": (1.0, 0.0, 0.0), "hands": (0.0, 1.0, 0.0)}
"""Shares of the jobs in the lessons that come before all three."""
POOL = 8
"""Batches drawn together, so that examples of like length can share a batch."""
SHEET_PAGES = 64


@dataclass
class Example:
    """One demonstration: pictures (uint8 RGB, [H, W, 3]), prompt messages, and the answer."""

    job: str
    pictures: list[np.ndarray]
    messages: prompts.Messages
    answer: str


@dataclass
class Plan:
    """An example before its pages are drawn."""

    job: str
    reference: BlockPage
    answer: str
    drafts: list[BlockPage] = field(default_factory=list)
    draft_html: str = ""
    critique: str | None = None


def plan_example(
    job: str,
    rng: random.Random,
    *,
    lesson: str = "all",
    own_drafts: list[tuple[BlockPage, str]],
    share: float,
    words: tuple[str, ...] = WORDS,
) -> Plan:
    """Draw a page, a draft of it and the demonstrated answer for one job.

    In the lesson "eyes" a page is written with all its words; in "hands" a draft of an easy page
    is always revised as it is asked for.
    """
    if job == "write":
        page = draw(rng, words)
        writer = demos.choose(demos.WRITERS, rng)
        return Plan(
            job, page, to_html(page if lesson == "eyes" else demos.write(page, writer, rng))
        )
    easy = lesson == "hands"
    if own_drafts and rng.random() < share:
        page, html = rng.choice(own_drafts)
        draft = parse_html(html)
    else:
        page = draw(rng, difficulties=("easy",) if easy else DIFFICULTIES)
        draft = demos.write(page, demos.choose(demos.WRITERS, rng), rng)
        html = to_html(draft)
    assert draft is not None  # own drafts are those that could be read
    if job == "revise":
        text = demos.criticise(page, draft, demos.choose(demos.REQUESTS, rng), rng)
        if text == demos.DONE or rng.random() < 0.1:
            return Plan(job, page, to_html(draft), draft_html=html)
        reviser = "careful" if easy else demos.choose(demos.REVISERS, rng)
        revised = demos.revise(draft, text, reviser, rng)
        return Plan(job, page, to_html(revised), draft_html=html, critique=text)
    critic = demos.choose(demos.CRITICS, rng)
    if rng.random() < 0.3:
        said = demos.criticise(page, draft, demos.choose(demos.CRITICS, rng), rng)
        if said != demos.DONE:
            later = demos.revise(draft, said, demos.choose(demos.REVISERS, rng), rng)
            answer = demos.criticise(page, later, critic, rng)
            return Plan(job, page, answer, drafts=[draft, later], critique=said)
    if rng.random() < 0.15:
        draft = page
    return Plan(job, page, demos.criticise(page, draft, critic, rng), drafts=[draft])


def draw(
    rng: random.Random,
    words: tuple[str, ...] = WORDS,
    difficulties: tuple[str, ...] = DIFFICULTIES,
) -> BlockPage:
    """Draw a page of the train split, of one of these difficulties."""
    while True:
        page = random_page(rng.choice(difficulties), rng, words)
        if split_of(page) == "train":
            return page


def words_at(share: float) -> tuple[str, ...]:
    """The words on pages when this share of the eyes' steps is done: few, more, then all.

    With all 28 from the start a small model learns to read none of them for thousands of pages.
    """
    few = 4 if share < 0.7 else 8
    return WORDS if share > 0.85 else SHORT[::2][:few] + LONG[::2][:few]


def draw_examples(plans: list[Plan], sheet: Sheet) -> list[Example]:
    """Render the pages of many plans, many to a screenshot, and write out their prompts."""
    htmls = [to_html(page) for plan in plans for page in _seen(plan)]
    sheets = [htmls[i : i + SHEET_PAGES] for i in range(0, len(htmls), SHEET_PAGES)]
    shots = iter([shot for pages in sheets for shot in sheet.draw(pages)])
    examples = []
    for plan in plans:
        pictures = [next(shots) for _ in _seen(plan)]
        if plan.job == "write":
            messages = prompts.developer_first(pictures[0])
        elif plan.job == "revise":
            messages = prompts.developer_revision(plan.draft_html, plan.critique)
        elif len(pictures) == 2:
            messages = prompts.critic_first(pictures[0], pictures[1])
        else:
            reference, last, new = pictures
            messages = prompts.critic_again(reference, last, new, plan.critique or "")
        examples.append(Example(plan.job, pictures, messages, plan.answer))
    return examples


def _seen(plan: Plan) -> list[BlockPage]:
    """The pages whose screenshots the prompt shows: a revision goes by the critique alone."""
    return [] if plan.job == "revise" else [plan.reference, *plan.drafts]


def produce(
    first: int,
    steps: int,
    *,
    eyes_until: int,
    hands_until: int,
    batch_size: int,
    seed: int,
    job_shares: tuple[float, ...],
    own_draft_share: float,
    out: Any,
    drafts_in: Any,
) -> None:
    """Put batches `first` to `steps` into the queue `out`, then None; for a process of its own.

    `drafts_in` brings drafts that the model wrote. Ends when the parent process is gone.
    """
    sheet = Sheet()
    own_drafts: list[tuple[BlockPage, str]] = []
    try:
        for step in range(first - first % POOL, steps, POOL):
            rng = random.Random(f"pretrain/{seed}/{step}")
            while not drafts_in.empty():
                own_drafts = drafts_in.get()
            lesson = "eyes" if step < eyes_until else "hands" if step < hands_until else "all"
            words = words_at(step / eyes_until) if lesson == "eyes" else WORDS
            shares = LESSONS.get(lesson, job_shares)
            plans = [
                plan_example(
                    rng.choices(JOBS, shares)[0],
                    rng,
                    lesson=lesson,
                    own_drafts=own_drafts,
                    share=own_draft_share,
                    words=words,
                )
                for _ in range(POOL * batch_size)
            ]
            plans.sort(key=lambda plan: (plan.job, len(plan.drafts), len(plan.answer)))
            examples = draw_examples(plans, sheet)
            batches = [examples[i : i + batch_size] for i in range(0, len(examples), batch_size)]
            rng.shuffle(batches)
            # A resumed run leaves out what it has had of the pool that it was stopped in.
            for batch in batches[max(0, first - step) :]:
                if not _put(out, batch):
                    # At its end a process waits until its queue is read; nobody is left to read.
                    out.cancel_join_thread()
                    return
        _put(out, None)
    finally:
        sheet.close()


def _put(out: Any, item: Any) -> bool:
    """Wait for a place in the queue, as long as somebody is there to take from it."""
    parent = multiprocessing.parent_process()
    while parent is None or parent.is_alive():
        try:
            out.put(item, timeout=5)
        except queue.Full:
            continue
        return True
    return False


def patchify(pictures: list[np.ndarray]) -> torch.Tensor:
    """What the image processor makes of pictures that need no resizing, all at once.

    uint8 [H, W, 3] with H and W multiples of 32 → float [patches, 1536], scaled to [-1, 1].
    """
    batch = np.stack(pictures)
    n, height, width, _ = batch.shape
    tiles = batch.reshape(n, height // 32, 2, 16, width // 32, 2, 16, 3)
    tiles = tiles.transpose(0, 1, 4, 2, 5, 7, 3, 6)
    patches = torch.from_numpy(np.ascontiguousarray(tiles)).float().div_(127.5).sub_(1)
    once = patches.reshape(-1, 3, 1, 16, 16)
    return once.expand(-1, -1, 2, -1, -1).reshape(-1, 1536)


def collate(examples: list[Example], processor: Any) -> dict[str, torch.Tensor]:
    """Left-padded prompts with right-padded answers, and labels over the answers alone."""
    tokenizer = processor.tokenizer
    pictures = [picture for example in examples for picture in example.pictures]
    height, width = pictures[0].shape[:2] if pictures else (0, 0)
    image_tokens = processor.image_token * (height * width // 32**2)
    image_prompts = []
    for example in examples:
        text = processor.apply_chat_template(
            example.messages, add_generation_prompt=True, enable_thinking=False
        )
        image_prompts.append(text.replace(processor.image_token, image_tokens))
    prompt_ids = tokenizer(image_prompts).input_ids
    answer_ids = [
        [*ids, tokenizer.eos_token_id]
        for ids in tokenizer([example.answer for example in examples]).input_ids
    ]
    left, right = max(map(len, prompt_ids)), max(map(len, answer_ids))
    input_ids = torch.full((len(examples), left + right), tokenizer.pad_token_id)
    attention_mask = torch.zeros_like(input_ids)
    labels = torch.full_like(input_ids, -100)
    for row, (prompt, answer) in enumerate(zip(prompt_ids, answer_ids, strict=True)):
        start, end = left - len(prompt), left + len(answer)
        input_ids[row, start:end] = torch.tensor(prompt + answer)
        attention_mask[row, start:end] = 1
        labels[row, left:end] = torch.tensor(answer)
    batch = {
        "input_ids": input_ids,
        "attention_mask": attention_mask,
        "mm_token_type_ids": (input_ids == processor.image_token_id).int(),
        "labels": labels,
    }
    if pictures:
        batch["pixel_values"] = patchify(pictures)
        grid = torch.tensor([[1, height // 16, width // 16]])
        batch["image_grid_thw"] = grid.repeat(len(pictures), 1)
    return batch
