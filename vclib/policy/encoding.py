"""Prompts as tensors: chat template, image patches, token types and positions.

The same picture is prepared once and shared by every prompt that shows it: the K rollouts of a
group all look at one reference, and a render that the Critic saw is seen again a turn later.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from weakref import WeakValueDictionary

import torch
from PIL import Image
from torch import Tensor

from vclib.errors import VclibError


@dataclass(frozen=True, eq=False)
class EncodedImage:
    """One picture cut into patches.

    pixel_values: [patches, channels * 2 * 16 * 16], float; grid_thw: [3], patches per axis.
    """

    pixel_values: Tensor
    grid_thw: Tensor


@dataclass(frozen=True, eq=False)
class Prompt:
    """What one generation starts from; tensors live on the CPU.

    input_ids, mm_token_type_ids: [T] (0 text, 1 image); position_ids: [3, T], M-RoPE's time,
    height and width.
    """

    input_ids: Tensor
    mm_token_type_ids: Tensor
    position_ids: Tensor
    images: tuple[EncodedImage, ...] = ()

    @property
    def pixel_values(self) -> Tensor | None:
        """All patches of all images, [patches, channels * 2 * 16 * 16]."""
        return torch.cat([image.pixel_values for image in self.images]) if self.images else None

    @property
    def image_grid_thw(self) -> Tensor | None:
        """One row an image, [n_images, 3]."""
        return torch.stack([image.grid_thw for image in self.images]) if self.images else None

    @cached_property
    def next_position(self) -> int:
        """The position of the first generated token, the same on M-RoPE's three axes."""
        return int(self.position_ids.max()) + 1

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """Equal for prompts of the same ids and the same images."""
        return (self.input_ids.numpy().tobytes(), *self.images)

    def __len__(self) -> int:
        return len(self.input_ids)


class Encoder:
    """Turns messages into prompts as the model's own processor does, each picture once."""

    def __init__(self, processor: Any, model: Any) -> None:
        self.processor = processor
        self.model = model
        self.merge = processor.image_processor.merge_size**2
        # Weak: a picture's patches live exactly as long as the prompts that show it.
        self._images: WeakValueDictionary[tuple[Any, ...], EncodedImage] = WeakValueDictionary()
        added = processor.tokenizer.added_tokens_decoder.values()
        self._control = [token.content for token in added if token.special]

    def encode(self, messages: list[dict[str, Any]], *, thinking: bool = False) -> Prompt:
        """Encode one conversation; the prompt ends where the assistant's turn begins."""
        messages, pictures = self._plain(messages)
        images = tuple(self._encode_image(picture) for picture in pictures)
        text = self.processor.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True, enable_thinking=thinking
        )
        input_ids = self._tokenize(text, images)
        is_image = input_ids == self.processor.image_token_id
        prompt = {"input_ids": input_ids, "mm_token_type_ids": is_image.long()}
        grid = torch.stack([image.grid_thw for image in images]) if images else None
        check_image_tokens(int(is_image.sum()), images, self.merge)
        position_ids, _ = self.model.get_rope_index(
            input_ids[None], prompt["mm_token_type_ids"][None], image_grid_thw=grid
        )
        return Prompt(**prompt, position_ids=position_ids[:, 0], images=images)

    def _plain(self, messages: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[Any]]:
        """The messages with control tokens in their text spelled out, and their pictures.

        A page may hold `<|im_end|>` or `<|image_pad|>` as text; in a prompt it must stay text.
        """
        pictures: list[Any] = []
        plain = []
        for message in messages:
            content = message["content"]
            parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
            pictures += [part["image"] for part in parts if part["type"] == "image"]
            parts = [self._spell_out(part) if part["type"] == "text" else part for part in parts]
            plain.append({**message, "content": parts})
        return plain, pictures

    def _spell_out(self, part: dict[str, Any]) -> dict[str, Any]:
        text = part["text"]
        for token in self._control:
            text = text.replace(token, f"{token[0]} {token[1:]}")
        return {**part, "text": text}

    def _tokenize(self, text: str, images: tuple[EncodedImage, ...]) -> Tensor:
        first, *rest = text.split(self.processor.image_token)
        if len(rest) != len(images):
            raise VclibError(
                f"The chat template wrote {len(rest)} image places for {len(images)} images; "
                "it must write one for each: use the template that belongs to the model."
            )
        for image, after in zip(images, rest, strict=True):
            count = int(image.grid_thw.prod()) // self.merge
            first += self.processor.image_token * count + after
        return self.processor.tokenizer(first, return_tensors="pt")["input_ids"][0]

    def _encode_image(self, picture: Any) -> EncodedImage:
        image = picture if isinstance(picture, Image.Image) else Image.fromarray(picture)
        image = image.convert("RGB")
        key = (image.size, hashlib.blake2b(image.tobytes(), digest_size=16).digest())
        encoded = self._images.get(key)
        if encoded is None:
            features = self.processor.image_processor(images=[image], return_tensors="pt")
            encoded = EncodedImage(features["pixel_values"], features["image_grid_thw"][0])
            self._images[key] = encoded
        return encoded


def by_length(lengths: Sequence[int], token_budget: int) -> list[list[int]]:
    """Indices in batches of like length, from the longest, of at most `token_budget` tokens each.

    Padding counts; what is longer than the budget has a batch of its own.
    """
    batches: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        # Sorted from the longest, the first of a batch gives its width.
        if batches and (len(batches[-1]) + 1) * lengths[batches[-1][0]] <= token_budget:
            batches[-1].append(i)
        else:
            batches.append([i])
    return batches


def check_image_tokens(tokens: int, images: tuple[EncodedImage, ...], merge: int) -> None:
    """Raise unless the image tokens are as many as the vision tower will make for the images."""
    features = sum(int(image.grid_thw.prod()) for image in images) // merge
    if tokens != features:
        raise VclibError(
            f"A prompt has {tokens} image tokens but its {len(images)} images make {features}; "
            "they must agree: encode the prompt again with this model's processor."
        )
