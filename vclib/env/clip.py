"""CLIP image embeddings for the reward's `clip` part, where their weights are at hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from vclib.env.look import Embed

CLIP = "openai/clip-vit-base-patch32"


def load_clip(name_or_path: str = CLIP) -> Embed | None:
    """A function from pixels (uint8 [H, W, 3]) to an embedding [512], or None without weights.

    Looks for the weights on this machine alone and downloads nothing. Radford et al. 2021.
    """
    folder = Path(name_or_path)
    if not folder.is_dir():
        # Imported here, as all below, because the environment must start fast, and do without.
        from huggingface_hub import try_to_load_from_cache

        cached = try_to_load_from_cache(name_or_path, "config.json")
        if not isinstance(cached, str):
            return None
        folder = Path(cached).parent
    import torch
    from transformers import CLIPImageProcessor, CLIPVisionModelWithProjection

    try:
        processor = CLIPImageProcessor.from_pretrained(folder, local_files_only=True)
        model = CLIPVisionModelWithProjection.from_pretrained(folder, local_files_only=True)
    except OSError:
        return None
    model.eval()

    @torch.no_grad()
    def embed(pixels: np.ndarray) -> np.ndarray:
        inputs = processor(images=pixels, return_tensors="pt")
        return model(**inputs).image_embeds[0].numpy()

    return embed
