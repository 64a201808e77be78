"""Trained adapters for others: peft folders or a merged model, with a model card, on the hub."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from huggingface_hub import HfApi, ModelCardData

from vclib.errors import VclibError
from vclib.paths import project
from vclib.policy.model import AGENTS, Policy
from vclib.policy.prompts import CRITICISE, WRITE

LOAD_ADAPTERS = """\
import torch
from peft import PeftModel
from transformers import AutoProcessor, Qwen3_5ForConditionalGeneration

base = Qwen3_5ForConditionalGeneration.from_pretrained({base!r}, dtype="auto")
model = PeftModel.from_pretrained(base, {name!r}, subfolder="developer", adapter_name="developer")
model.load_adapter({name!r}, "critic", subfolder="critic")
model.set_adapter("developer")
processor = AutoProcessor.from_pretrained({base!r})
"""
LOAD_MERGED = """\
import torch
from transformers import AutoProcessor, Qwen3_5ForConditionalGeneration

model = Qwen3_5ForConditionalGeneration.from_pretrained({name!r}, dtype="auto")
processor = AutoProcessor.from_pretrained({name!r})
"""
ASK = """\
question = {question!r}
pictures = [{{"type": "image", "image": path}} for path in {pictures!r}]
messages = [{{"role": "user", "content": [*pictures, {{"type": "text", "text": question}}]}}]
inputs = processor.apply_chat_template(
    messages, add_generation_prompt=True, enable_thinking=False,
    tokenize=True, return_dict=True, return_tensors="pt",
).to(model.device)
with torch.no_grad():
    ids = model.generate(
        **inputs, max_new_tokens=512, do_sample=True, temperature=0.7, top_p=1.0, top_k=0
    )
print(processor.decode(ids[0, inputs["input_ids"].shape[1]:], skip_special_tokens=True))
"""
CARD = """\
---
{data}
---

# {title}

{what}

Trained by reinforcement learning (GRPO) with [VisionCoder]({project}):
the Developer writes HTML for a screenshot, the Critic says what is wrong with the render, the
Developer revises, and a browser scores each draft.

## Use

```python
{code}```
{facts}{results}
## Limits

A page was scored by its likeness to a reference, not by whether its HTML is good. Treat what the
model writes as untrusted: it may hold scripts, and addresses that a browser would fetch.
"""


def export(
    policy: Policy,
    folder: Path,
    *,
    base: str,
    name: str | None = None,
    merge: str | None = None,
    facts: Mapping[str, object] | None = None,
    results: str = "",
) -> Path:
    """Write both adapters in peft's layout, and a model card, to a folder; returns the folder.

    With `merge`, an agent, it is a plain model with that agent's adapter added into the weights.
    `base` is the folder or hub name of the model, `name` what the card loads (by default the
    folder), `facts` a table and `results` a text for the card.
    """
    if merge:
        policy.save_merged(folder, merge)
    else:
        policy.save_adapters(folder)
    card = model_card(base, name or str(folder), merge, facts or {}, results)
    (folder / "README.md").write_text(card, encoding="utf-8")
    return folder


def model_card(
    base: str, name: str, merge: str | None, facts: Mapping[str, object], results: str = ""
) -> str:
    """The README.md of an export: metadata of the hub, code that loads it, how it was made."""
    data = ModelCardData(
        # The hub knows models by its own names alone.
        base_model=None if Path(base).is_dir() else base,
        library_name="transformers" if merge else "peft",
        pipeline_tag="image-text-to-text",
        tags=["grpo", "reinforcement-learning", "visioncoder", *([] if merge else ["lora"])],
    )
    agents = f"the {merge.capitalize()}" if merge else "the Developer and the Critic"
    what = (
        f"A copy of `{base}` with the {merge} adapter added into its weights."
        if merge
        else f"Two LoRA adapters of `{base}`, one for each agent: {', '.join(AGENTS)}."
    )
    question, pictures = (
        (CRITICISE, ["page.png", "copy.png"]) if merge == "critic" else (WRITE, ["page.png"])
    )
    load = LOAD_MERGED if merge else LOAD_ADAPTERS
    rows = "".join(f"| {key} | {value} |\n" for key, value in facts.items())
    return CARD.format(
        data=data.to_yaml(),
        title=f"VisionCoder: {agents}",
        what=what,
        project=project()["urls"]["Homepage"],
        code=load.format(base=base, name=name) + ASK.format(question=question, pictures=pictures),
        facts=f"\n## Training\n\n| setting | value |\n|---|---|\n{rows}" if facts else "",
        results=f"\n## Results\n\n```text\n{results}\n```\n" if results else "",
    )


def push(folder: Path, name: str, *, private: bool = False, endpoint: str | None = None) -> str:
    """Upload an export to the hub as `name` ("owner/model"); returns its address.

    Raises VclibError, in one sentence, if the hub cannot be reached or refuses.
    """
    try:
        api = HfApi(endpoint=endpoint)
        address = api.create_repo(name, private=private, exist_ok=True)
        api.upload_folder(repo_id=name, folder_path=folder)
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise VclibError(
            f"{folder} could not be pushed to {name!r} ({reason}); the folder is whole: "
            "log in with `hf auth login`, then push it again."
        ) from error
    return str(address)
