"""vc-tiny: a Qwen3.5-VL of a few million parameters, with its tokenizer, processor and template.

It has the architecture of the large models (linear-attention and full-attention layers, a vision
tower with patches of 16 pixels merged two by two) and is loaded by the same calls.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, trainers
from transformers import (
    GenerationConfig,
    Qwen2VLImageProcessor,
    Qwen3_5Config,
    Qwen3_5ForConditionalGeneration,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
)
from transformers.models.qwen3_5.tokenization_qwen3_5 import Qwen3_5Tokenizer

from vclib.paths import TINY

SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_end|>",
    "<|im_start|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<think>",
    "</think>",
)
MARKUP = re.compile(
    r"<!doctype html>|<body[^#>]*|<[^<>#\d]*>?\n?|px[;\"a-z:]*>?\n?|;[a-z-]+:[a-z]*|\">\n?"
    r"|#[0-9a-fA-F]{6}|\d\d+|row \d cell \d: |row \d: |page: background "
)
"""Runs of markup, hex colours, numbers and places in a critique: whole tokens where frequent."""

CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{{ '<|im_start|>' + message.role + '\\n' }}"
    "{%- if message.content is string -%}{{ message.content }}"
    "{%- else -%}{%- for part in message.content -%}"
    "{%- if part.type == 'image' -%}{{ '<|vision_start|><|image_pad|><|vision_end|>' }}"
    "{%- elif part.type == 'text' -%}{{ part.text }}{%- endif -%}"
    "{%- endfor -%}{%- endif -%}{{ '<|im_end|>\\n' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n<think>\\n' }}"
    "{%- if enable_thinking is not defined or enable_thinking is false -%}"
    "{{ '\\n</think>\\n\\n' }}{%- endif -%}{%- endif -%}"
)
"""As Qwen3.5's own: newlines are written as expressions, for the tags eat those around them."""


def build_tokenizer(corpus: Iterable[str], vocab_size: int = 768) -> Qwen3_5Tokenizer:
    """Train a byte-level BPE tokenizer on texts; any text is encoded without loss.

    Frequent runs of markup become added tokens, since the tokenizer class of Qwen3.5 splits all
    other text by its own pattern, whatever pre-tokenizer is saved in the file.
    """
    texts = list(corpus)
    runs = Counter(run for text in texts for run in MARKUP.findall(text))
    frequent = sorted(run for run, count in runs.items() if count >= 20)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = Qwen3_5Tokenizer().backend_tokenizer.pre_tokenizer
    tokenizer.train_from_iterator(
        (piece for text in texts for piece in MARKUP.split(text)),
        trainers.BpeTrainer(
            vocab_size=vocab_size - len(SPECIAL_TOKENS) - len(frequent),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    bpe = json.loads(tokenizer.to_str())["model"]
    built = Qwen3_5Tokenizer(
        vocab=bpe["vocab"],
        merges=[tuple(merge) for merge in bpe["merges"]],
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        model_max_length=4096,
    )
    built.add_special_tokens({"additional_special_tokens": list(SPECIAL_TOKENS[2:])})
    built.add_tokens([AddedToken(run, special=False, normalized=False) for run in frequent])
    return built


def build_processor(tokenizer: Qwen3_5Tokenizer) -> Qwen3VLProcessor:
    """The processor of the large models around a tokenizer of our own."""
    pixels = {"shortest_edge": 32 * 32, "longest_edge": 1024 * 1024}
    patches = {"patch_size": 16, "temporal_patch_size": 2, "merge_size": 2, "size": pixels}
    normal = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
    return Qwen3VLProcessor(
        image_processor=Qwen2VLImageProcessor(**patches, **normal),
        tokenizer=tokenizer,
        video_processor=Qwen3VLVideoProcessor(**patches, **normal),
        chat_template=CHAT_TEMPLATE,
    )


def tiny_config(
    tokenizer: Qwen3_5Tokenizer,
    *,
    hidden: int = 256,
    layers: tuple[str, ...] = ("full", "linear", "full", "full"),
    vision_hidden: int = 192,
    vision_depth: int = 3,
) -> Qwen3_5Config:
    """A Qwen3.5-VL configuration for a tokenizer; `layers` names each layer's attention."""
    ids = tokenizer.convert_tokens_to_ids
    head_dim = 32 if hidden < 128 else 64
    heads = hidden // head_dim
    text = {
        "vocab_size": len(tokenizer),
        "hidden_size": hidden,
        "intermediate_size": hidden * 3,
        "num_hidden_layers": len(layers),
        "layer_types": [f"{kind}_attention" for kind in layers],
        "num_attention_heads": heads,
        "num_key_value_heads": heads // 2,
        "head_dim": head_dim,
        "linear_num_key_heads": heads // 2,
        "linear_num_value_heads": heads // 2,
        "linear_key_head_dim": head_dim,
        "linear_value_head_dim": head_dim,
        "max_position_embeddings": 4096,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10_000.0,
            "partial_rotary_factor": 0.5,
            "mrope_section": [head_dim // 4 - 2 * (head_dim // 12), head_dim // 12, head_dim // 12],
            "mrope_interleaved": True,
        },
        "tie_word_embeddings": True,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    vision = {
        "depth": vision_depth,
        "hidden_size": vision_hidden,
        "intermediate_size": vision_hidden * 3,
        "num_heads": max(1, vision_hidden // 48),
        "out_hidden_size": hidden,
        "patch_size": 16,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "num_position_embeddings": 256,
    }
    return Qwen3_5Config(
        text_config=text,
        vision_config=vision,
        image_token_id=ids("<|image_pad|>"),
        video_token_id=ids("<|video_pad|>"),
        vision_start_token_id=ids("<|vision_start|>"),
        vision_end_token_id=ids("<|vision_end|>"),
        tie_word_embeddings=True,
    )


def build_model(config: Qwen3_5Config, seed: int = 0) -> Qwen3_5ForConditionalGeneration:
    """A model with random weights drawn from `seed`, with every EOS id in its generation config."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3_5ForConditionalGeneration(config)
    text = config.text_config
    model.generation_config = GenerationConfig(
        eos_token_id=[text.eos_token_id, text.pad_token_id], pad_token_id=text.pad_token_id
    )
    return model


def random_model(folder: str | Path, seed: int = 0, *, hidden: int = 64) -> Path:
    """Write a small model with random weights, and its processor, to `folder`; for tests.

    It takes the tokenizer of vc-tiny where that is at hand, so that prompts have the same length.
    """
    folder = Path(folder)
    if (TINY / "tokenizer.json").exists():
        tokenizer = Qwen3_5Tokenizer.from_pretrained(TINY)
    else:
        tokenizer = build_tokenizer(["<!doctype html><html><body></body></html> DONE"])
    config = tiny_config(
        tokenizer,
        hidden=hidden,
        layers=("linear", "full"),
        vision_hidden=48,
        vision_depth=1,
    )
    build_model(config, seed).save_pretrained(folder)
    build_processor(tokenizer).save_pretrained(folder)
    return folder
