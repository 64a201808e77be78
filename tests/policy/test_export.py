"""Exports, as those who know nothing of this project load them."""

import re

import peft
import pytest
import torch
from huggingface_hub import ModelCard
from PIL import Image
from transformers import Qwen3_5ForConditionalGeneration

from vclib.errors import VclibError
from vclib.policy import prompts
from vclib.policy.export import export, model_card, push
from vclib.policy.model import AGENTS, LORA_TARGETS


@pytest.fixture
def question(policy, pictures):
    """One prompt as the plain model takes it."""
    prompt = policy.encode(prompts.developer_first(pictures[0]))
    return {
        "input_ids": prompt.input_ids[None],
        "mm_token_type_ids": prompt.mm_token_type_ids[None],
        "pixel_values": prompt.pixel_values,
        "image_grid_thw": prompt.image_grid_thw,
    }


@torch.no_grad()
def logits(model, question):
    return model.eval()(**question).logits


def expected(policy, question, agent):
    with policy.acting(agent):
        return logits(policy.model, question)


@pytest.mark.parametrize("agent", AGENTS)
def test_plain_peft_loads_an_exported_adapter(policy, question, model_folder, tmp_path, agent):
    folder = export(policy, tmp_path / "export", base=str(model_folder))
    plain = Qwen3_5ForConditionalGeneration.from_pretrained(model_folder)
    loaded = peft.PeftModel.from_pretrained(plain, folder / agent)
    found = logits(loaded, question)
    assert torch.allclose(found, expected(policy, question, agent), atol=1e-5)
    assert not torch.allclose(found, expected(policy, question, None), atol=1e-2)
    assert loaded.peft_config["default"].target_modules == LORA_TARGETS


@pytest.mark.parametrize("agent", AGENTS)
def test_plain_transformers_loads_a_merged_model(policy, question, model_folder, tmp_path, agent):
    folder = export(policy, tmp_path / "export", base=str(model_folder), merge=agent)
    merged = Qwen3_5ForConditionalGeneration.from_pretrained(folder)
    assert torch.allclose(logits(merged, question), expected(policy, question, agent), atol=1e-4)
    assert not list(folder.glob("*/adapter_config.json"))


@pytest.mark.parametrize("merge", [None, *AGENTS])
def test_the_code_on_the_card_runs_and_gives_the_same_logits(
    policy, model_folder, pictures, tmp_path, monkeypatch, merge, capsys
):
    folder = export(policy, tmp_path / "export", base=str(model_folder), merge=merge)
    text = (folder / "README.md").read_text(encoding="utf-8")
    [code] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    for name, picture in zip(("page.png", "copy.png"), pictures[:2], strict=True):
        Image.fromarray(picture).save(name)
    names = {}
    exec(code.replace("max_new_tokens=512", "max_new_tokens=4"), names)
    assert capsys.readouterr().out
    asked = prompts.critic_first(*pictures[:2]) if merge == "critic" else None
    prompt = policy.encode(asked or prompts.developer_first(pictures[0]))
    assert torch.equal(names["inputs"]["input_ids"][0], prompt.input_ids)
    found = logits(names["model"], names["inputs"])
    agent = merge or "developer"
    assert torch.allclose(found, expected(policy, names["inputs"], agent), atol=1e-4)
    if not merge:
        names["model"].set_adapter("critic")
        found = logits(names["model"], names["inputs"])
        assert torch.allclose(found, expected(policy, names["inputs"], "critic"), atol=1e-5)


def test_a_card_has_what_the_hub_reads_and_how_it_was_trained():
    text = model_card("Qwen/Qwen3.5-9B", "owner/name", None, {"seed": 3}, "0.5 to 0.6")
    card = ModelCard(text)
    assert card.data.base_model == "Qwen/Qwen3.5-9B"
    assert card.data.library_name == "peft" and card.data.pipeline_tag == "image-text-to-text"
    assert "| seed | 3 |" in text and "```text\n0.5 to 0.6\n```" in text
    assert "from_pretrained(base, 'owner/name', subfolder=\"developer\"" in text
    bare = model_card("Qwen/Qwen3.5-9B", "owner/name", "developer", {})
    assert ModelCard(bare).data.library_name == "transformers"
    assert "## Training" not in bare and "## Results" not in bare


def test_a_model_that_is_a_folder_is_not_named_to_the_hub(model_folder):
    card = ModelCard(model_card(str(model_folder), "owner/name", None, {}))
    assert card.data.base_model is None


def test_a_hub_that_cannot_be_reached_is_one_sentence_and_the_folder_stays(
    policy, model_folder, tmp_path
):
    folder = export(policy, tmp_path / "export", base=str(model_folder))
    # Nothing listens on port 9.
    with pytest.raises(VclibError, match=r"could not be pushed to 'owner/name'") as caught:
        push(folder, "owner/name", endpoint="http://127.0.0.1:9")
    assert "\n" not in str(caught.value)
    assert (folder / "critic" / "adapter_model.safetensors").is_file()
