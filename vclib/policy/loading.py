"""Getting a model from a folder or the hub, and what is read off it: device, dtype, ids."""

from __future__ import annotations

from typing import Any

import torch
from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
from transformers import AutoConfig, AutoProcessor, Qwen3_5ForConditionalGeneration

from vclib.errors import VclibError


def require_on_hub(name: str) -> None:
    """Fail at once where loading from the hub would retry for half a minute and then fail."""
    try:
        if try_to_load_from_cache(name, "config.json") is None:
            get_hf_file_metadata(hf_hub_url(name, "config.json"))
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise VclibError(
            f"No model {name!r}: it is neither a folder nor to be had from the hub ({reason}); "
            "give the folder of a model, or go online to download it."
        ) from error


def load_base(
    name: str, device: torch.device, dtype: torch.dtype
) -> tuple[Qwen3_5ForConditionalGeneration, Any]:
    """The model and its processor. Raises VclibError if it is another kind or not all there."""
    try:
        config = AutoConfig.from_pretrained(name)
        if config.model_type != "qwen3_5":
            raise VclibError(
                f"The model in {name!r} is of type {config.model_type!r}; "
                "expected 'qwen3_5', a Qwen3.5 with vision."
            )
        base, info = Qwen3_5ForConditionalGeneration.from_pretrained(
            name,
            dtype=dtype,
            device_map={"": device} if device.type == "cuda" else None,
            output_loading_info=True,
        )
        processor = AutoProcessor.from_pretrained(name)
        tokenizer, text = processor.tokenizer, "<p>é</p>"
        if not processor.chat_template or tokenizer.decode(tokenizer(text).input_ids) != text:
            raise ValueError("its chat_template.jinja is missing, or its tokenizer.json no use")
    except VclibError:
        raise
    except Exception as error:  # Files that do not fit each other raise many kinds of error.
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise VclibError(
            f"The model {name!r} cannot be loaded ({reason}); expected a config.json and "
            "safetensors weights: give another folder, or download the model again."
        ) from error
    if info["missing_keys"]:
        raise VclibError(
            f"The model {name!r} lacks {len(info['missing_keys'])} weights, "
            f"{min(info['missing_keys'])} for one: download or export it again."
        )
    return base.to(device), processor


def choose_device(device: str) -> torch.device:
    """The device of that name; "auto" is a GPU where there is one. Raises VclibError."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError) as error:
        raise VclibError(
            f"No device {device!r} on this machine; give auto, cpu, or cuda where torch sees a GPU."
        ) from error


def choose_dtype(dtype: str, device: torch.device) -> torch.dtype:
    if dtype != "auto":
        chosen = getattr(torch, dtype, None)
        if not isinstance(chosen, torch.dtype):
            raise VclibError(f"Unknown dtype {dtype!r}: expected auto, float32, bfloat16, float16.")
        return chosen
    if device.type != "cuda":
        return torch.float32
    # A T4 says that it supports bf16, and emulates it slowly.
    really = torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.bfloat16 if really else torch.float16


def eos_ids(base: Qwen3_5ForConditionalGeneration, tokenizer: Any) -> list[int]:
    """Every id that ends a turn: the tokenizer's class default is not the one that chat uses."""
    found: set[int] = set()
    configured = (base.generation_config.eos_token_id, base.config.text_config.eos_token_id)
    for ids in (*configured, tokenizer.eos_token_id, tokenizer.get_vocab().get("<|im_end|>")):
        found.update([ids] if isinstance(ids, int) else ids or [])
    return sorted(found)


def suppressed_ids(
    base: Qwen3_5ForConditionalGeneration, tokenizer: Any, ends: list[int]
) -> list[int]:
    """Ids never to be sampled: vision and control tokens, and embeddings that spell nothing."""
    added = tokenizer.added_tokens_decoder.items()
    control = {i for i, t in added if t.special and t.content not in ("<think>", "</think>")}
    config = base.config
    vision = {
        config.image_token_id,
        config.video_token_id,
        config.vision_start_token_id,
        config.vision_end_token_id,
    }
    unused = set(range(len(tokenizer), config.text_config.vocab_size))
    return sorted((control | vision | unused) - set(ends))
