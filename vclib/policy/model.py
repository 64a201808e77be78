"""One vision-language model with two LoRA adapters, the Developer's and the Critic's."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
from peft import LoraConfig, PeftModel, get_peft_model, set_peft_model_state_dict
from peft.utils import SAFETENSORS_WEIGHTS_NAME
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import Qwen3_5ForConditionalGeneration

from vclib.errors import VclibError
from vclib.paths import in_project
from vclib.policy.encoding import EncodedImage, Encoder, Prompt, check_image_tokens
from vclib.policy.loading import (
    choose_device,
    choose_dtype,
    eos_ids,
    load_base,
    require_on_hub,
    suppressed_ids,
)

AGENTS = ("developer", "critic")
LORA_TARGETS = (
    r"(.*\.)?language_model\.layers\.\d+\."
    r"(self_attn\.[qkvo]_proj|linear_attn\.(in_proj_qkv|in_proj_z|out_proj)"
    r"|mlp\.(gate|up|down)_proj)"
)
"""The language model's projections, DeltaNet's with them; never the vision tower's."""


@dataclass(frozen=True)
class LoraSettings:
    """Rank, scale (alpha / r multiplies the update) and dropout of each adapter (LoRA, 2021)."""

    r: int = 16
    alpha: int = 32
    dropout: float = 0.05


DEFAULT_LORA = LoraSettings()


class Policy:
    """The model, its processor and its two adapters; in eval mode, nothing trainable at first."""

    def __init__(self, model: PeftModel, processor: Any) -> None:
        self.model = model.eval()
        self.processor = processor
        self.tokenizer = processor.tokenizer
        self.base: Qwen3_5ForConditionalGeneration = model.get_base_model()
        self.device = self.base.lm_head.weight.device
        self.eos_ids = eos_ids(self.base, self.tokenizer)
        self.suppressed_ids = suppressed_ids(self.base, self.tokenizer, self.eos_ids)
        pad = self.tokenizer.pad_token_id
        self.pad_id: int = self.eos_ids[0] if pad is None else pad
        self._encoder = Encoder(processor, self.base.model)
        self._features: WeakKeyDictionary[EncodedImage, Tensor] = WeakKeyDictionary()
        self.agent: str | None = AGENTS[0]
        self._trainable: tuple[str, ...] = ()
        self._parameters = {agent: _parameters_of(model, agent) for agent in AGENTS}
        self._switch(self.agent)

    @classmethod
    def load(
        cls,
        name_or_path: str | Path,
        *,
        lora: LoraSettings = DEFAULT_LORA,
        seed: int = 0,
        device: str = "auto",
        dtype: str = "auto",
        adapters: Path | None = None,
    ) -> Policy:
        """Load a model from a folder or the hub, and give it two adapters that change nothing yet.

        `seed` draws the adapters' A matrices. `adapters` is a folder that `save_adapters` wrote.
        Raises VclibError where there is no such model, it is another kind, or weights are missing.
        """
        name = str(name_or_path)
        if not Path(name).is_dir():
            require_on_hub(name)
        where = choose_device(device)
        with torch.random.fork_rng(devices=[where] if where.type == "cuda" else []):
            base, processor = load_base(name, where, choose_dtype(dtype, where))
            torch.manual_seed(seed)
            config = LoraConfig(
                r=lora.r,
                lora_alpha=lora.alpha,
                lora_dropout=lora.dropout,
                target_modules=LORA_TARGETS,
            )
            with warnings.catch_warnings():
                # peft asks transformers for checkpointing by its old name.
                warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")
                model = get_peft_model(base, config, adapter_name=AGENTS[0])
                for agent in AGENTS[1:]:
                    model.add_adapter(agent, config)
        for saved in model.peft_config.values():
            saved.base_model_name_or_path = in_project(name)
        policy = cls(model, processor)
        if adapters is not None:
            policy.load_adapters(adapters)
        return policy

    @contextmanager
    def acting(self, agent: str | None) -> Iterator[None]:
        """Let `agent` (None: the base, adapters off) answer; what is trainable stays as it was."""
        before = self.agent
        self._switch(agent)
        try:
            yield
        finally:
            self._switch(before)

    def train_only(self, *agents: str) -> None:
        """Make exactly these agents' adapters trainable (none: freeze all)."""
        for agent in agents:
            self.adapter_parameters(agent)
        self._trainable = agents
        self._restore_trainable()

    def adapter_parameters(self, agent: str) -> dict[str, nn.Parameter]:
        """One adapter's parameters by their full names, in the model's order."""
        if agent not in self._parameters:
            raise VclibError(f"Unknown agent {agent!r}: expected one of {', '.join(AGENTS)}.")
        return self._parameters[agent]

    def save_adapters(self, folder: str | Path) -> None:
        """Write `folder/developer` and `folder/critic` in peft's layout."""
        self.model.save_pretrained(
            str(folder), selected_adapters=list(AGENTS), save_embedding_layers=False
        )
        # peft adds a card with nothing filled in.
        (Path(folder) / "README.md").unlink(missing_ok=True)

    def load_adapters(self, folder: str | Path) -> None:
        """Read what `save_adapters` wrote, in place: optimizers keep their parameters.

        Raises VclibError, and changes nothing, if an adapter is absent, damaged or does not fit.
        """
        states = {agent: self._read_adapter(Path(folder), agent) for agent in AGENTS}
        for agent, state in states.items():
            set_peft_model_state_dict(self.model, state, adapter_name=agent)
        self._restore_trainable()

    def _read_adapter(self, folder: Path, agent: str) -> dict[str, Tensor]:
        path = folder / agent / SAFETENSORS_WEIGHTS_NAME
        if not path.is_file():
            raise VclibError(f"No {agent} adapter in {folder}: expected {path}.")
        try:
            state = load_file(path)
        except SafetensorError as error:
            raise VclibError(
                f"The adapter in {path} is damaged ({error}); take an earlier checkpoint."
            ) from error
        shapes = {
            name.replace(f".{agent}.", "."): p.shape
            for name, p in self.adapter_parameters(agent).items()
        }
        if shapes != {name: tensor.shape for name, tensor in state.items()}:
            raise VclibError(
                f"The adapter in {path} does not fit this model: its layers or its rank "
                "differ; load it with the model and the LoRA settings that it was made with."
            )
        return state

    def save_merged(self, folder: str | Path, agent: str) -> None:
        """Write a plain model with one adapter added into its weights, and its processor."""
        self.adapter_parameters(agent)
        state = {}
        for name, tensor in self.base.state_dict().items():
            if ".lora_" not in name:
                state[name.replace(".base_layer.", ".")] = tensor
        for name, module in self.base.named_modules():
            if hasattr(module, "get_delta_weight") and agent in module.lora_A:
                weight = state[f"{name}.weight"]
                delta = module.get_delta_weight(agent)
                state[f"{name}.weight"] = (weight.float() + delta.float()).to(weight.dtype)
        self.base.save_pretrained(folder, state_dict=state)
        self.processor.save_pretrained(folder)

    @property
    def suppressed(self) -> Tensor:
        """`suppressed_ids` on the policy's device, [n]; n may be 0."""
        return torch.tensor(self.suppressed_ids, dtype=torch.long, device=self.device)

    def encode(self, messages: list[dict[str, Any]], *, thinking: bool = False) -> Prompt:
        """Encode one conversation as the model's processor does (see `prompts`)."""
        return self._encoder.encode(messages, thinking=thinking)

    def embed(self, input_ids: Tensor, prompts: Sequence[Prompt]) -> Tensor:
        """Token embeddings [batch, seq, hidden] with each prompt's image features in their places.

        Row i of `input_ids` [batch, seq] holds prompt i. The vision tower is frozen, so a
        picture's features are computed once, for as long as a prompt shows it.
        """
        images = [image for prompt in prompts for image in prompt.images]
        is_image = input_ids == self.base.config.image_token_id
        for tokens, prompt in zip(is_image.sum(1).tolist(), prompts, strict=True):
            check_image_tokens(tokens, prompt.images, self._encoder.merge)
        embeds = self.base.get_input_embeddings()(input_ids)
        if not images:
            return embeds
        features = torch.cat([self._image_features(image) for image in images])
        return embeds.masked_scatter(is_image[..., None], features.to(embeds.dtype))

    def _image_features(self, image: EncodedImage) -> Tensor:
        # One picture at a time: its features then never depend on what else is in the batch.
        features = self._features.get(image)
        if features is None:
            with torch.no_grad():
                output = self.base.model.get_image_features(
                    image.pixel_values.to(self.device), image.grid_thw[None].to(self.device)
                )
            features = self._features[image] = output.pooler_output[0]
        return features

    def _switch(self, agent: str | None) -> None:
        if agent is None:
            self.model.base_model.disable_adapter_layers()
        else:
            self.adapter_parameters(agent)
            self.model.base_model.enable_adapter_layers()
            self.model.set_adapter(agent)
        self.agent = agent
        self._restore_trainable()

    def _restore_trainable(self) -> None:
        # peft makes whatever it switches to trainable, and unfreezes when adapters come back on.
        wanted = {name for agent in self._trainable for name in self._parameters[agent]}
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad_(name in wanted)
        trainable = {n for n, p in self.model.named_parameters() if p.requires_grad}
        assert trainable == wanted, "parameters are trainable that should not be, or the reverse"


def _parameters_of(model: PeftModel, agent: str) -> dict[str, nn.Parameter]:
    return {n: p for n, p in model.named_parameters() if ".lora_" in n and f".{agent}." in n}
