"""How much memory training takes, from the shape of the model alone: nothing is allocated."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call
from transformers import AutoModelForImageTextToText, Qwen3_5Config

from vclib.policy.model import DEFAULT_LORA, LORA_TARGETS, LoraSettings

_SMALL_EYES = {"depth": 24, "hidden_size": 1024, "intermediate_size": 4096}
SHAPES: dict[str, tuple[dict[str, int], dict[str, int], bool]] = {
    "0.8B": (
        {"hidden_size": 1024, "num_hidden_layers": 24, "intermediate_size": 3584}
        | {"num_attention_heads": 8, "num_key_value_heads": 2, "linear_num_value_heads": 16},
        {"depth": 12, "hidden_size": 768, "intermediate_size": 3072, "num_heads": 12},
        True,
    ),
    "2B": (
        {"hidden_size": 2048, "num_hidden_layers": 24, "intermediate_size": 6144}
        | {"num_attention_heads": 8, "num_key_value_heads": 2, "linear_num_value_heads": 16},
        _SMALL_EYES,
        True,
    ),
    "4B": (
        {"hidden_size": 2560, "num_hidden_layers": 32, "intermediate_size": 9216}
        | {"num_attention_heads": 16, "num_key_value_heads": 4, "linear_num_value_heads": 32},
        _SMALL_EYES,
        True,
    ),
    "9B": (
        {"hidden_size": 4096, "num_hidden_layers": 32, "intermediate_size": 12288}
        | {"num_attention_heads": 16, "num_key_value_heads": 4, "linear_num_value_heads": 32},
        {"depth": 27, "hidden_size": 1152, "intermediate_size": 4304},
        False,
    ),
}
"""Text, vision, and whether the output layer is the embedding, of Qwen/Qwen3.5-0.8B to 9B.

What is not named is the default of transformers' `Qwen3_5Config`. Source: public copies of
the models' config.json (`text_config`, `vision_config`, `tie_word_embeddings`).
"""
LOGITS_COPIES = 5
"""fp32 tensors of [chunk, vocab] alive at once where log-probabilities are made or taken back."""


def qwen_config(size: str) -> Qwen3_5Config:
    """The configuration of a Qwen3.5 of one of the sizes in `SHAPES`."""
    text, vision, tied = SHAPES[size]
    vision = vision | {"out_hidden_size": text["hidden_size"]}
    return Qwen3_5Config(text_config=text, vision_config=vision, tie_word_embeddings=tied)


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes of one process.

    adapters: both adapters, the gradient of one, AdamW's two moments of both. activations: what a
    micro-batch keeps for its backward pass. logits: on the way to log-probabilities. cache: of all
    rows that generate, at their full length, with the copy that is made when rows leave.
    """

    parameters: int
    adapters: int
    activations: int
    logits: int
    cache: int

    @property
    def total(self) -> int:
        """The most at one time: episodes are played before the update, never during it."""
        return self.parameters + self.adapters + max(self.activations + self.logits, self.cache)


def plan_memory(
    config: Qwen3_5Config,
    *,
    rows: int,
    prompt: int,
    new: int,
    token_budget: int,
    turns: int,
    checkpointing: bool = True,
    dtype: torch.dtype = torch.bfloat16,
    lora: LoraSettings = DEFAULT_LORA,
    chunk: int = 1024,
) -> MemoryPlan:
    """Plan a run in which `rows` episodes generate `new` tokens each after prompts of `prompt`.

    `turns`: how many are learnt from; a micro-batch holds as many as fit `token_budget`.
    """
    model = _with_adapter(config, dtype, lora)
    adapter = sum(p.numel() for n, p in model.named_parameters() if ".lora_" in n) * 4
    weights = _bytes(p for n, p in model.named_parameters() if ".lora_" not in n)
    length = prompt + new
    in_batch = max(1, min(turns, token_budget // length))
    scored = min(chunk, in_batch * new)
    text = config.text_config
    return MemoryPlan(
        parameters=weights,
        adapters=7 * adapter,
        activations=activation_bytes(config, in_batch, length, checkpointing, dtype, lora),
        logits=LOGITS_COPIES * scored * text.vocab_size * 4,
        cache=2 * rows * cache_bytes(config, length, dtype),
    )


def cache_bytes(config: Qwen3_5Config, length: int, dtype: torch.dtype) -> int:
    """Keys, values and states of one row of `length` tokens."""
    text = config.text_config
    full = text.layer_types.count("full_attention")
    linear = text.layer_types.count("linear_attention")
    keys_and_values = 2 * text.num_key_value_heads * text.head_dim * dtype.itemsize
    key_dim = text.linear_num_key_heads * text.linear_key_head_dim
    value_dim = text.linear_num_value_heads * text.linear_value_head_dim
    convolution = (2 * key_dim + value_dim) * text.linear_conv_kernel_dim * dtype.itemsize
    recurrent = value_dim * text.linear_key_head_dim * 4
    return full * keys_and_values * length + linear * (convolution + recurrent)


def activation_bytes(
    config: Qwen3_5Config,
    rows: int,
    length: int,
    checkpointing: bool,
    dtype: torch.dtype,
    lora: LoraSettings = DEFAULT_LORA,
) -> int:
    """What autograd keeps of a micro-batch [rows, length].

    With checkpointing: the input of each layer, and all of the one layer that is made again.
    """
    kinds = config.text_config.layer_types
    kept = {k: _kept_by_layer(config, k, rows, length, dtype, lora) for k in dict.fromkeys(kinds)}
    if not checkpointing:
        return sum(kept[kind] for kind in kinds)
    inputs = len(kinds) * rows * length * config.text_config.hidden_size * dtype.itemsize
    return inputs + max(kept.values())


def _kept_by_layer(
    config: Qwen3_5Config,
    kind: str,
    rows: int,
    length: int,
    dtype: torch.dtype,
    lora: LoraSettings,
) -> int:
    """Run one layer on tensors without storage and add up what autograd would keep of it."""
    one = copy.deepcopy(config)
    one.text_config.layer_types, one.text_config.num_hidden_layers = [kind], 1
    one.vision_config.depth = 1
    text = _with_adapter(one, dtype, lora).get_base_model().model.language_model
    layer = text.layers[0]
    shape = (rows, length, one.text_config.hidden_size)
    angles = text.rotary_emb(
        torch.empty(shape, dtype=dtype, device="meta"),
        torch.empty(3, rows, length, dtype=torch.long, device="meta"),
    )
    # Fake tensors take the kernels that real ones on a CPU would take; those on "meta" do not.
    with FakeTensorMode():
        tensors = (*layer.named_parameters(), *layer.named_buffers())
        own = {name: torch.empty(x.shape, dtype=x.dtype) for name, x in tensors}
        for name, tensor in own.items():
            tensor.requires_grad_(".lora_" in name)
        hidden = torch.empty(shape, dtype=dtype, requires_grad=True)
        how = {"position_embeddings": tuple(torch.empty(x.shape, dtype=x.dtype) for x in angles)}
        return kept_bytes(lambda: functional_call(layer, own, (hidden,), how), own.values())


def kept_bytes(run: Callable[[], Any], parameters: Any) -> int:
    """Bytes that autograd keeps of `run()`, each tensor's memory once, without the parameters."""
    own = {p.untyped_storage()._cdata for p in parameters}
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            kept[storage._cdata] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = run()
    del result
    return sum(storage.nbytes() for storage in kept.values())


def _with_adapter(config: Qwen3_5Config, dtype: torch.dtype, lora: LoraSettings) -> Any:
    """The model with one adapter, of tensors that have a shape and no storage."""
    config = copy.deepcopy(config)
    config.text_config.dtype = config.vision_config.dtype = dtype
    how = LoraConfig(r=lora.r, lora_alpha=lora.alpha, target_modules=LORA_TARGETS)
    with torch.device("meta"):
        base = AutoModelForImageTextToText.from_config(config, dtype=dtype)
        return get_peft_model(base, how)


def _bytes(tensors: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
