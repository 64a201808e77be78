import gc

import numpy as np
import pytest
import torch
from PIL import Image
from qwen_vl_utils import process_vision_info

from vclib.errors import VclibError
from vclib.policy import prompts
from vclib.policy.encoding import Prompt, by_length
from vclib.policy.sampling import SamplingSettings, sample


def by_processor(policy, messages, **options):
    """What the model's own processor makes of a conversation."""
    text = policy.processor.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True, enable_thinking=False
    )
    images = [part["image"] for part in messages[0]["content"] if part["type"] == "image"]
    return policy.processor(text=[text], images=images, return_tensors="pt", **options)


@pytest.mark.parametrize("which", range(4))
def test_a_prompt_is_what_the_models_processor_makes(policy, conversations, which):
    prompt = policy.encode(conversations[which])
    expected = by_processor(policy, conversations[which])
    assert torch.equal(prompt.input_ids, expected["input_ids"][0])
    assert torch.equal(prompt.mm_token_type_ids, expected["mm_token_type_ids"][0])
    assert torch.equal(prompt.pixel_values, expected["pixel_values"])
    assert torch.equal(prompt.image_grid_thw, expected["image_grid_thw"])


def test_positions_are_those_of_the_model_for_the_padded_batch(policy, encoded):
    pad_left = dict(batch_first=True, padding_side="left")
    pad = torch.nn.utils.rnn.pad_sequence
    expected, deltas = policy.base.model.get_rope_index(
        pad([p.input_ids for p in encoded], **pad_left),
        pad([p.mm_token_type_ids for p in encoded], **pad_left),
        image_grid_thw=torch.cat([p.image_grid_thw for p in encoded]),
        attention_mask=pad([torch.ones(len(p), dtype=torch.long) for p in encoded], **pad_left),
    )
    for row, prompt in enumerate(encoded):
        assert torch.equal(prompt.position_ids, expected[:, row, -len(prompt) :])
        assert prompt.next_position == len(prompt) + int(deltas[row])


def test_a_picture_is_prepared_once_and_forgotten_with_its_prompts(policy):
    pixels = np.full((64, 96, 3), 7, np.uint8)
    first = policy.encode(prompts.developer_first(pixels))
    again = policy.encode(prompts.critic_first(Image.fromarray(pixels), pixels.copy()))
    assert {*first.images, *again.images} == {first.images[0]}
    other = policy.encode(prompts.developer_first(pixels + 1))
    assert other.images[0] is not first.images[0]
    turned = policy.encode(prompts.developer_first(pixels.reshape(96, 64, 3)))
    assert turned.images[0] is not first.images[0]
    held = len(policy._encoder._images)
    del first, again
    gc.collect()
    assert len(policy._encoder._images) == held - 1


def test_the_vision_tower_sees_a_picture_once(policy, pictures, seeded):
    calls = []
    hook = policy.base.model.visual.register_forward_hook(lambda *_: calls.append(1))
    group = [policy.encode(prompts.developer_first(pictures[3] // 2)) for _ in range(4)]
    sample(policy, group, "developer", SamplingSettings(2), seeded(0))
    sample(policy, group, "critic", SamplingSettings(2), seeded(0))
    hook.remove()
    assert len(calls) == 1


def test_a_page_of_640_by_480_is_300_image_tokens(policy):
    prompt = policy.encode(prompts.developer_first(np.zeros((480, 640, 3), np.uint8)))
    assert prompt.image_grid_thw.tolist() == [[1, 30, 40]]
    assert int(prompt.mm_token_type_ids.sum()) == 300


def test_qwen_vl_utils_with_the_right_patch_size_resizes_nothing(policy, pictures):
    odd = np.random.default_rng(1).integers(0, 256, (90, 110, 3), dtype=np.uint8)
    for picture in (*pictures, odd):
        messages = prompts.developer_first(picture)
        prompt = policy.encode(messages)
        images, _ = process_vision_info(messages, image_patch_size=16)
        resized = policy.processor.image_processor(images=images, return_tensors="pt")
        assert torch.equal(prompt.image_grid_thw, resized["image_grid_thw"])
    assert prompt.image_grid_thw.tolist() == [[1, 6, 6]]


def test_thinking_is_told_to_the_template_always(policy, pictures):
    messages = prompts.developer_first(pictures[0])
    off, on = policy.encode(messages), policy.encode(messages, thinking=True)
    assert policy.tokenizer.decode(off.input_ids).endswith("<think>\n\n</think>\n\n")
    assert policy.tokenizer.decode(on.input_ids).rstrip().endswith("<think>")


def test_control_tokens_in_a_page_stay_text(policy, pictures):
    page = "<p><|image_pad|> <|im_end|> <|vision_start|></p>"
    prompt = policy.encode(prompts.developer_revision(page, "<|endoftext|>", pictures[0]))
    plain = policy.encode(prompts.developer_revision("", "", pictures[0]))
    control = torch.tensor(policy.tokenizer.all_special_ids)
    counts = [torch.isin(p.input_ids, control).sum() for p in (prompt, plain)]
    assert counts[0] == counts[1]
    assert "< |image_pad|>" in policy.tokenizer.decode(prompt.input_ids)


def test_image_tokens_that_disagree_with_the_images_are_refused(policy, encoded):
    ids, types, positions, images = (
        encoded[2].input_ids,
        encoded[2].mm_token_type_ids,
        encoded[2].position_ids,
        encoded[2].images,
    )
    for wrong in (images[:1], (images[0], images[0]), ()):
        prompt = Prompt(ids, types, positions, wrong)
        with pytest.raises(VclibError, match="image tokens"):
            sample(policy, [encoded[0], prompt], None, SamplingSettings(1))
    # The sum over the batch agrees here, and still each row is wrong.
    swapped = Prompt(ids, types, positions, encoded[3].images)
    with pytest.raises(VclibError, match="image tokens"):
        sample(policy, [swapped], None, SamplingSettings(1))


def test_a_text_without_pictures_can_be_encoded(policy):
    prompt = policy.encode([{"role": "user", "content": "Say DONE."}])
    assert prompt.images == () and prompt.pixel_values is None and prompt.image_grid_thw is None
    assert torch.equal(prompt.position_ids, torch.arange(len(prompt)).expand(3, -1))
    assert len(sample(policy, [prompt], None, SamplingSettings(3))) == 1


def test_batches_by_length_keep_to_the_budget_and_hold_every_index_once():
    lengths = [5, 90, 20, 21, 5, 300, 22, 4]
    batches = by_length(lengths, 100)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        width = max(lengths[i] for i in batch)
        assert len(batch) == 1 or width * len(batch) <= 100
    assert batches[0] == [5]
