"""Pre-training in small: the batches are the processor's, the loss falls, a run goes on."""

import json
import random
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoProcessor, Qwen3_5ForConditionalGeneration

from vclib.env.sheet import Sheet
from vclib.errors import VclibError
from vclib.rl.examples import JOBS, collate, draw_examples, plan_example
from vclib.rl.pretrain import PretrainSettings, pretrain, rate_at, train_tokenizer

SMALL = {"hidden": 64, "layers": ("linear", "full"), "vision_hidden": 48, "vision_depth": 1}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pretrain")
    settings = PretrainSettings(
        output=str(folder), steps=12, batch_size=4, warmup=1, checkpoint_every=6,
        own_drafts_every=100, learning_rate=5e-3, **SMALL,
    )  # fmt: skip
    return settings, list(pretrain(settings))


def test_the_loss_falls_and_every_step_is_logged(run):
    settings, records = run
    losses = [record["loss"] for record in records if record["job"] == "write"]
    assert min(losses[1:]) < losses[0] - 0.5
    assert {record["job"] for record in records} > {"write"}
    lines = Path(settings.output, "pretrain.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == list(range(12))


def test_the_saved_model_is_loaded_by_the_standard_calls(run):
    settings, _ = run
    model = Qwen3_5ForConditionalGeneration.from_pretrained(settings.output)
    processor = AutoProcessor.from_pretrained(settings.output)
    assert model.config.text_config.layer_types == ["linear_attention", "full_attention"]
    assert processor.tokenizer.decode(processor.tokenizer("<b>é #dc2626</b>").input_ids) == (
        "<b>é #dc2626</b>"
    )


def test_a_stopped_run_goes_on_where_it_was(run, tmp_path):
    settings, _ = run
    settings = PretrainSettings(**{**settings.__dict__, "output": str(tmp_path)})
    first = pretrain(settings)
    for record in first:
        if record["step"] == 8:  # past the checkpoint at 6
            break
    first.close()
    # As if it had been killed after writing the model of a later step, before its state.
    later = Path(run[0].output, "model.safetensors")
    shutil.copy(later, tmp_path)
    records = list(pretrain(settings, resume=True))
    assert [record["step"] for record in records] == list(range(6, 12))
    expected = [record["loss"] for record in run[1][6:]]
    assert [record["loss"] for record in records] == pytest.approx(expected, abs=1e-3)
    assert not list(tmp_path.glob(".saving*")) and not list(tmp_path.glob(".*.tmp"))
    lines = Path(settings.output, "pretrain.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == list(range(12))
    with pytest.raises(VclibError, match="resume"):
        next(pretrain(PretrainSettings(output=str(tmp_path / "none")), resume=True))


def test_a_batch_is_what_the_processor_makes_of_each_example():
    rng = random.Random(0)
    tokenizer = train_tokenizer(0, 768)
    from vclib.policy.tiny import build_processor

    processor = build_processor(tokenizer)
    sheet = Sheet()
    try:
        plans = [plan_example(job, rng, own_drafts=[], share=0) for job in JOBS]
        examples = draw_examples(plans, sheet)
    finally:
        sheet.close()
    for example in examples:
        batch = collate([example], processor)
        content = example.messages[0]["content"]
        images = [part["image"] for part in content if part["type"] == "image"]
        text = processor.apply_chat_template(
            example.messages, add_generation_prompt=True, enable_thinking=False
        )
        expected = processor(text=[text], images=images or None, return_tensors="pt")
        length = expected["input_ids"].shape[1]
        assert torch.equal(batch["input_ids"][:, :length], expected["input_ids"])
        assert ("pixel_values" in batch) == bool(images)
        if images:
            assert torch.allclose(batch["pixel_values"], expected["pixel_values"], atol=1e-6)
            assert torch.equal(batch["image_grid_thw"], expected["image_grid_thw"])
        assert (batch["labels"][:, :length] == -100).all()
        answer = batch["labels"][0, length:-1]
        assert processor.tokenizer.decode(answer) == example.answer


def test_the_rate_warms_up_holds_and_falls():
    settings = PretrainSettings(output="", steps=1000, warmup=100, decay=0.2)
    assert rate_at(0, settings) == pytest.approx(0.01)
    assert rate_at(500, settings) == 1
    assert rate_at(1000, settings) == pytest.approx(0.05)
