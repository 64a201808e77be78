"""CLIP image embeddings for the reward's `clip` part, where their weights are at hand."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

CLIP = "openai/clip-vit-base-patch32"


def load_clip(name_or_path: str = CLIP) -> Callable[[np.ndarray], np.ndarray] | None:
    """A function from pixels (uint8 [H, W, 3]) to an embedding [512], or None without weights.

    Looks for the weights on this machine alone and downloads nothing. Radford et al. 2021.
    """
    # Imported here because the environment must run, and start fast, without torch.
    import torch
    from transformers import CLIPImageProcessor, CLIPVisionModelWithProjection

    try:
        processor = CLIPImageProcessor.from_pretrained(name_or_path, local_files_only=True)
        model = CLIPVisionModelWithProjection.from_pretrained(name_or_path, local_files_only=True)
    except OSError:
        return None
    model.eval()

    @torch.no_grad()
    def embed(pixels: np.ndarray) -> np.ndarray:
        inputs = processor(images=pixels, return_tensors="pt")
        return model(**inputs).image_embeds[0].numpy()

    return embed
