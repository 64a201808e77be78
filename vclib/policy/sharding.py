"""The frozen layers shared out over processes while gradients are taken (FSDP).

Only the update has activations to keep, so only there the weights make room for them. Episodes are
played with whole weights: processes write turns of different length, and a layer that is gathered
from all of them would have all of them wait for the longest. The adapters are small and change
hands between phases, so they stay whole on every process and are left to the trainer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from vclib.policy.model import AGENTS, Policy


def prepare(policy: Policy) -> Callable[[], AbstractContextManager[None]]:
    """Make the layers ready to be shared out over all processes; returns `shared` for them."""
    mesh = init_device_mesh(policy.device.type, (dist.get_world_size(),))
    adapters = {p for agent in AGENTS for p in policy.adapter_parameters(agent).values()}
    for layer in _layers(policy):
        fully_shard(layer, mesh=mesh, reshard_after_forward=False, ignored_params=adapters)
        layer.unshard()
    return partial(shared, policy)


@contextmanager
def shared(policy: Policy) -> Iterator[None]:
    """Inside, each process holds its share of every layer and gathers the rest when it is used.

    All processes must come here together, and inside run the layers equally often, forward and
    backward. Reading the model's state, as saving does, also belongs inside: it shares them out.
    """
    for layer in _layers(policy):
        layer.set_reshard_after_forward(True)
        layer.reshard()
    try:
        yield
    finally:
        for layer in _layers(policy):
            layer.set_reshard_after_forward(False)
            layer.unshard()


def _layers(policy: Policy) -> Any:
    return policy.base.model.language_model.layers
