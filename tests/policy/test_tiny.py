"""vc-tiny: its tokenizer, template and configuration, and the checkpoint that is shipped."""

import pytest
from transformers import AutoProcessor, AutoTokenizer, Qwen3_5ForConditionalGeneration

from vclib.paths import TINY
from vclib.policy import prompts
from vclib.policy.tiny import build_tokenizer, random_model

PAGE = (
    '<!doctype html><html><body style="margin:0;background:#ffffff">\n'
    '<div style="background:#dc2626;color:#ffffff;height:48px">Sign in</div>\n</body></html>'
)
TEXTS = (
    PAGE,
    "row 2 cell 1: background #dc2626\nrow 3: words none\nDONE",
    "Ünïcode, 日本, \t tabs\n\n  and   spaces, 0.5e-3 <b>&amp;</b>",
    "",
)


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer([PAGE] * 50 + ["row 2 cell 1: background #dc2626\nDONE"] * 50)


@pytest.mark.parametrize("text", TEXTS)
def test_any_text_is_encoded_without_loss(tokenizer, text, tmp_path):
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    for each in (tokenizer, loaded):
        assert each.decode(each(text).input_ids) == text
    assert loaded(text).input_ids == tokenizer(text).input_ids


def test_colours_numbers_and_runs_of_markup_are_one_token(tokenizer):
    tokens = tokenizer.tokenize(PAGE)
    for whole in ("<!doctype html>", '<div style="background:', "#dc2626", "48", "</div>\n"):
        assert whole in tokens
    assert len(tokens) < len(PAGE) / 5


def test_the_processor_of_a_saved_model_tokenizes_alike(tmp_path):
    """The tokenizer class of Qwen3.5 sets its own pre-tokenizer: nothing may depend on another."""
    processor = AutoProcessor.from_pretrained(random_model(tmp_path))
    again = AutoTokenizer.from_pretrained(tmp_path)
    assert processor.tokenizer(PAGE).input_ids == again(PAGE).input_ids
    assert processor.tokenizer.decode(processor.tokenizer(PAGE).input_ids) == PAGE


def test_thinking_is_off_unless_asked_for(tmp_path):
    processor = AutoProcessor.from_pretrained(random_model(tmp_path))
    messages = [{"role": "user", "content": "Hello"}]
    told = {
        thinking: processor.apply_chat_template(
            messages, add_generation_prompt=True, enable_thinking=thinking
        )
        for thinking in (True, False)
    }
    asked = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    assert told[True] == f"{asked}<think>\n"
    assert told[False] == f"{asked}<think>\n\n</think>\n\n"


def test_the_shipped_model_is_a_small_qwen_with_both_kinds_of_layer():
    model = Qwen3_5ForConditionalGeneration.from_pretrained(TINY)
    assert 3e6 <= sum(parameter.numel() for parameter in model.parameters()) <= 8e6
    kinds = set(model.config.text_config.layer_types)
    assert kinds == {"linear_attention", "full_attention"}
    weights = sum(path.stat().st_size for path in TINY.iterdir())
    assert weights <= 20e6
    assert len(model.generation_config.eos_token_id) == 2


def test_the_shipped_tokenizer_writes_a_page_in_few_tokens():
    from vclib.env.synth import DIFFICULTIES, block_page

    tokenizer = AutoTokenizer.from_pretrained(TINY)
    for index in range(60):
        html = block_page("heldout", DIFFICULTIES[index % 3], index)
        ids = tokenizer(html).input_ids
        assert tokenizer.decode(ids) == html
        assert len(ids) < 130
    assert len(tokenizer(prompts.WRITE).input_ids) < 40
