"""The state of rows that generate: prompts run in, then one token at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, LinearAttentionLayer

from vclib.policy.encoding import Prompt, by_length
from vclib.policy.model import Policy

PREFILL_TOKENS = {"cpu": 2048, "cuda": 16384}
"""Tokens of prompts that run at once; on a CPU small batches stay in its caches."""


@dataclass
class DecodingState:
    """The rows that still generate.

    mask: [rows, seq]; position: [rows], of the next token; hidden: [rows, hidden], the state that
    predicts it.
    """

    cache: DynamicCache
    mask: Tensor
    position: Tensor
    hidden: Tensor

    def select(self, index: Tensor) -> None:
        """Keep these rows, in this order, possibly several times."""
        self.cache.reorder_cache(index)
        self.mask, self.position = self.mask[index], self.position[index]
        self.hidden = self.hidden[index]

    def advance(self, policy: Policy, tokens: Tensor) -> None:
        """Feed one token a row, [rows]."""
        self.mask = pad(self.mask, (0, 1), value=1)
        output = policy.base.model.language_model(
            inputs_embeds=policy.base.get_input_embeddings()(tokens[:, None]),
            position_ids=self.position[None, :, None].expand(3, -1, 1),
            attention_mask=self.mask,
            cache=self.cache,
            use_cache=True,
        )
        self.position = self.position + 1
        self.hidden = output.last_hidden_state[:, -1]


def prefill(policy: Policy, prompts: Sequence[Prompt], room: int) -> DecodingState:
    """Run the prompts, equal ones once, and give every prompt its row of the state.

    `room` is how many tokens will follow.
    """
    first_of: dict[tuple[Any, ...], int] = {}
    unique: list[Prompt] = []
    for prompt in prompts:
        if prompt.key not in first_of:
            first_of[prompt.key] = len(unique)
            unique.append(prompt)
    batches = by_length(list(map(len, unique)), PREFILL_TOKENS.get(policy.device.type, 2048))
    state = _join([_prefill_batch(policy, [unique[i] for i in batch], room) for batch in batches])
    row_of = {i: row for row, i in enumerate(i for batch in batches for i in batch)}
    rows = [row_of[first_of[prompt.key]] for prompt in prompts]
    state.select(torch.tensor(rows, device=policy.device))
    return state


def _prefill_batch(policy: Policy, prompts: list[Prompt], room: int) -> DecodingState:
    # Left padding with its mask is the one batched layout that linear attention continues from.
    width = max(map(len, prompts))
    input_ids = torch.full((len(prompts), width), policy.pad_id)
    mask = torch.zeros(len(prompts), width, dtype=torch.long)
    position_ids = torch.zeros(3, len(prompts), width, dtype=torch.long)
    for row, prompt in enumerate(prompts):
        left = width - len(prompt)
        input_ids[row, left:] = prompt.input_ids
        mask[row, left:] = 1
        position_ids[:, row, left:] = prompt.position_ids
    mask = mask.to(policy.device)
    cache = DynamicCache(config=policy.base.config.text_config)
    own = {DynamicLayer: lambda: RoomyLayer(room), LinearAttentionLayer: ReplacedState}
    cache.layers = [own[type(x)]() if type(x) in own else x for x in cache.layers]
    output = policy.base.model.language_model(
        inputs_embeds=policy.embed(input_ids.to(policy.device), prompts),
        position_ids=position_ids.to(policy.device),
        attention_mask=mask,
        cache=cache,
        use_cache=True,
    )
    position = torch.tensor([prompt.next_position for prompt in prompts], device=policy.device)
    return DecodingState(cache, mask, position, output.last_hidden_state[:, -1])


def _join(states: list[DecodingState]) -> DecodingState:
    """All rows of several states in one, padded on the left to the longest prompt."""
    if len(states) == 1:
        return states[0]
    width = max(state.mask.shape[1] for state in states)
    cache = states[0].cache
    for layer, *others in zip(*(state.cache.layers for state in states), strict=True):
        same = [layer, *others]
        if isinstance(layer, RoomyLayer):
            layer.keys = torch.cat([_widen(x.keys, width) for x in same])
            layer.values = torch.cat([_widen(x.values, width) for x in same])
        else:
            for i in layer.conv_states:
                layer.conv_states[i] = torch.cat([x.conv_states[i] for x in same])
                layer.recurrent_states[i] = torch.cat([x.recurrent_states[i] for x in same])
    mask = torch.cat([pad(s.mask, (width - s.mask.shape[1], 0)) for s in states])
    position = torch.cat([s.position for s in states])
    return DecodingState(cache, mask, position, torch.cat([s.hidden for s in states]))


def _widen(states: Tensor, width: int) -> Tensor:
    """Keys or values [rows, heads, seq, head_dim] with room on the left that the mask hides."""
    return pad(states, (0, 0, width - states.shape[-2], 0))


class RoomyLayer(DynamicLayer):
    """Full attention's keys and values, [rows, heads, seq, head_dim], with room for more tokens.

    The stock layer copies all of them at every token to append one. `keys` and `values` are views
    of the part that is filled.
    """

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room
        self._key_room: Tensor | None = None
        self._value_room: Tensor | None = None

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Append the states of new tokens and return all keys and values."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.keys, self.values = key_states, value_states
            return key_states, value_states
        start = self.get_seq_length()
        end = start + key_states.shape[-2]
        if self._key_room is None or self._value_room is None or end > self._key_room.shape[-2]:
            self._key_room = self._roomy(self.keys, key_states, end)
            self._value_room = self._roomy(self.values, value_states, end)
        self._key_room[:, :, start:end] = key_states
        self._value_room[:, :, start:end] = value_states
        self.keys, self.values = self._key_room[:, :, :end], self._value_room[:, :, :end]
        return self.keys, self.values

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Keep these rows, in this order; room is made again when the next token comes."""
        super().reorder_cache(beam_idx)
        self._key_room = self._value_room = None

    def _roomy(self, filled: Tensor, new: Tensor, end: int) -> Tensor:
        rows, heads, _, head_dim = new.shape
        room = torch.empty(
            (rows, heads, end + self.room, head_dim), dtype=new.dtype, device=new.device
        )
        room[:, :, : filled.shape[-2]] = filled
        return room


class ReplacedState(LinearAttentionLayer):
    """Linear attention's states; a new one takes the place of the old.

    The stock layer writes over the old one, which a backward pass still needs.
    """

    def update_recurrent_state(
        self, recurrent_states: Tensor, state_idx: int = 0, **kwargs: Any
    ) -> Tensor:
        """Keep this state, [rows, heads, head_dim, head_dim], in place of the last."""
        self.recurrent_states[state_idx] = recurrent_states
        self.is_recurrent_states_initialized[state_idx] = True
        return recurrent_states
