import json
import re
import shutil

import peft
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoProcessor, Qwen3_5ForConditionalGeneration

from vclib.errors import VclibError
from vclib.policy.loading import choose_dtype
from vclib.policy.model import AGENTS, LoraSettings, Policy
from vclib.policy.sampling import SamplingSettings, sample
from vclib.policy.scoring import sequence_logprobs


def trainable(policy):
    return {name for name, p in policy.model.named_parameters() if p.requires_grad}


def logprobs_of(policy, samples, agent):
    with torch.no_grad():
        return sequence_logprobs(policy, samples, agent, temperature=1.0)[0]


def weights(policy, agent):
    return {n: p.detach().clone() for n, p in policy.adapter_parameters(agent).items()}


@pytest.fixture
def samples(policy, encoded, seeded):
    return sample(policy, encoded, None, SamplingSettings(6), seeded(3))


def test_the_class_is_the_one_that_sees(policy):
    assert type(policy.base) is Qwen3_5ForConditionalGeneration
    assert {layer.block_type for layer in policy.base.model.language_model.layers} == {
        "linear_attention",
        "full_attention",
    }


def test_adapters_sit_on_every_projection_of_the_language_model_and_nowhere_else(policy):
    linear = {
        name
        for name, module in policy.base.named_modules()
        if isinstance(getattr(module, "base_layer", module), torch.nn.Linear)
        and "lora" not in name
        and not name.endswith("base_layer")
    }
    adapted = {
        name for name, module in policy.base.named_modules() if hasattr(module, "base_layer")
    }
    left_out = {re.sub(r"\.\d+\.", ".N.", name) for name in linear - adapted}
    assert all("language_model.layers" in name for name in adapted)
    assert {name for name in left_out if "visual" not in name} == {
        "lm_head",
        "model.language_model.layers.N.linear_attn.in_proj_a",
        "model.language_model.layers.N.linear_attn.in_proj_b",
    }
    assert {name.split(".")[-1] for name in adapted} == {
        *("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
        *("in_proj_qkv", "in_proj_z", "out_proj"),
    }
    for agent in AGENTS:
        assert len(policy.adapter_parameters(agent)) == 2 * len(adapted)


def test_a_new_adapter_changes_nothing(model_folder, samples):
    fresh = Policy.load(model_folder, device="cpu")
    base = logprobs_of(fresh, samples, None)
    for agent in AGENTS:
        assert torch.equal(logprobs_of(fresh, samples, agent), base)


def test_the_seed_draws_the_adapters_and_disturbs_no_other_luck(model_folder):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first = Policy.load(model_folder, seed=1, device="cpu")
    assert torch.equal(torch.rand(3), expected)
    again = Policy.load(model_folder, seed=1, device="cpu")
    other = Policy.load(model_folder, seed=2, device="cpu")
    for agent in AGENTS:
        name = next(iter(first.adapter_parameters(agent)))
        drawn = [p.adapter_parameters(agent)[name] for p in (first, again, other)]
        assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])


def test_the_adapters_differ_from_each_other_and_from_the_base(policy, samples):
    developer, critic, base = (logprobs_of(policy, samples, a) for a in (*AGENTS, None))
    for one, other in ((developer, critic), (developer, base), (critic, base)):
        assert (one - other).abs().max() > 1e-2


@pytest.mark.parametrize("agents", [(), ("developer",), ("critic",), AGENTS])
def test_what_is_trainable_survives_every_switch(policy, samples, agents):
    policy.train_only(*agents)
    wanted = {name for agent in agents for name in policy.adapter_parameters(agent)}
    assert trainable(policy) == wanted
    for agent in (*AGENTS, None):
        with policy.acting(agent):
            assert trainable(policy) == wanted
            with policy.acting(None):
                assert trainable(policy) == wanted
            with policy.acting("critic"):
                assert trainable(policy) == wanted
            assert policy.agent == agent
        assert trainable(policy) == wanted
        logprobs_of(policy, samples[:1], agent)
        sample(policy, [samples[0].prompt], agent, SamplingSettings(1))
        assert trainable(policy) == wanted
    with pytest.raises(RuntimeError), policy.acting(None):
        raise RuntimeError
    assert trainable(policy) == wanted
    # peft's own context unfreezes the adapter that is on when it ends.
    with policy.model.disable_adapter():
        pass
    with policy.acting("critic"):
        assert trainable(policy) == wanted


def test_acting_without_adapters_leaves_them_on_afterwards(policy, samples):
    before = logprobs_of(policy, samples, "developer")
    with policy.acting("developer"):
        logprobs_of(policy, samples, None)
        assert torch.equal(logprobs_of(policy, samples, "developer"), before)


@pytest.mark.parametrize("agent, partner", [AGENTS, AGENTS[::-1]])
def test_a_step_moves_one_adapter_and_nothing_else(policy, samples, agent, partner):
    policy.train_only(agent)
    before = {n: p.detach().clone() for n, p in policy.model.named_parameters()}
    optimizer = torch.optim.AdamW(policy.adapter_parameters(agent).values(), lr=0.1)
    with policy.acting(partner):
        logprobs, _ = sequence_logprobs(policy, samples, agent, temperature=1.0)
    (-logprobs.sum()).backward()
    optimizer.step()
    moved = {n for n, p in policy.model.named_parameters() if not torch.equal(p, before[n])}
    assert moved == set(policy.adapter_parameters(agent))


def test_both_agents_at_once_each_get_their_own_gradient(policy, samples):
    policy.train_only(*AGENTS)
    alone = {}
    for agent in AGENTS:
        sequence_logprobs(policy, samples, agent, temperature=1.0)[0].sum().backward()
        alone[agent] = [p.grad.clone() for p in policy.adapter_parameters(agent).values()]
        policy.model.zero_grad(set_to_none=True)
    losses = [sequence_logprobs(policy, samples, a, temperature=1.0)[0].sum() for a in AGENTS]
    sum(losses).backward()
    for agent in AGENTS:
        together = [p.grad for p in policy.adapter_parameters(agent).values()]
        assert all(torch.allclose(x, y) for x, y in zip(together, alone[agent], strict=True))


def test_adapters_are_saved_in_the_standard_layout_and_read_back_in_place(
    policy, samples, tmp_path, model_folder
):
    expected = {agent: logprobs_of(policy, samples, agent) for agent in AGENTS}
    policy.train_only("critic")
    policy.save_adapters(tmp_path)
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == set(AGENTS)
    parameters = {agent: dict(policy.adapter_parameters(agent)) for agent in AGENTS}
    with torch.no_grad():
        for agent in AGENTS:
            for parameter in parameters[agent].values():
                parameter.add_(1.0)
    policy.load_adapters(tmp_path)
    assert trainable(policy) == set(parameters["critic"])
    for agent in AGENTS:
        assert policy.adapter_parameters(agent).items() == parameters[agent].items()
        assert torch.equal(logprobs_of(policy, samples, agent), expected[agent])

    loaded = Policy.load(model_folder, lora=LoraSettings(r=4), device="cpu", adapters=tmp_path)
    for agent in AGENTS:
        assert torch.equal(logprobs_of(loaded, samples, agent), expected[agent])

    # peft loads adapters with nothing trainable unless told otherwise.
    loaded.train_only("critic")
    sequence_logprobs(loaded, samples, "critic", temperature=1.0)[0].sum().backward()
    assert all(p.grad.abs().max() > 0 for p in loaded.adapter_parameters("critic").values())

    base = Qwen3_5ForConditionalGeneration.from_pretrained(model_folder)
    plain = peft.PeftModel.from_pretrained(base, tmp_path / "critic", is_trainable=True)
    names = {
        n.replace(".default.", ".critic.") for n, p in plain.named_parameters() if p.requires_grad
    }
    assert names == set(policy.adapter_parameters("critic"))


def test_adapters_that_do_not_fit_are_refused_and_change_nothing(policy, tmp_path, model_folder):
    Policy.load(model_folder, lora=LoraSettings(r=8), device="cpu").save_adapters(tmp_path)
    before = weights(policy, "developer")
    with pytest.raises(VclibError, match="does not fit"):
        policy.load_adapters(tmp_path)
    (tmp_path / "developer" / "adapter_model.safetensors").write_bytes(b"cut short")
    with pytest.raises(VclibError, match="is damaged"):
        policy.load_adapters(tmp_path)
    shutil.rmtree(tmp_path / "developer")
    with pytest.raises(VclibError, match="No developer adapter"):
        policy.load_adapters(tmp_path)
    assert all(torch.equal(p, before[n]) for n, p in weights(policy, "developer").items())


def test_a_merged_model_is_the_adapter_without_adapters(policy, samples, tmp_path):
    expected = logprobs_of(policy, samples, "developer")
    before = {name: tensor.clone() for name, tensor in policy.base.state_dict().items()}
    policy.save_merged(tmp_path, "developer")
    after = policy.base.state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    merged = Policy.load(tmp_path, device="cpu")
    assert torch.allclose(logprobs_of(merged, samples, None), expected, atol=1e-4)
    assert type(AutoProcessor.from_pretrained(tmp_path)) is type(policy.processor)
    names = set(load_file(tmp_path / "model.safetensors"))
    assert not any("lora" in name or "base_layer" in name for name in names)


def test_every_id_that_ends_a_turn_is_known(policy):
    ids = policy.tokenizer.convert_tokens_to_ids
    assert set(policy.eos_ids) == {ids("<|im_end|>"), ids("<|endoftext|>")}
    assert policy.tokenizer.eos_token == "<|im_end|>"


def test_vision_and_control_tokens_and_unused_ids_are_suppressed(policy):
    names = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>", "<|im_start|>"]
    ids = policy.tokenizer.convert_tokens_to_ids
    unused = range(len(policy.tokenizer), policy.base.config.text_config.vocab_size)
    assert set(policy.suppressed_ids) == {*map(ids, names), *unused}
    assert ids("</think>") not in policy.suppressed_ids


@pytest.mark.parametrize("name", ["vclib-tests/there-is-no-such-model", "no such/place", "./none"])
def test_a_model_that_cannot_be_had_is_told_in_one_sentence(name):
    with pytest.raises(VclibError) as caught:
        Policy.load(name)
    assert name in str(caught.value) and "\n" not in str(caught.value)


def test_a_folder_without_a_model_is_told_in_one_sentence(tmp_path):
    with pytest.raises(VclibError, match="cannot be loaded") as caught:
        Policy.load(tmp_path)
    assert "\n" not in str(caught.value)


def test_another_kind_of_model_is_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3"}))
    with pytest.raises(VclibError, match="'qwen3'"):
        Policy.load(tmp_path)


def test_missing_weights_are_refused_not_drawn_at_random(model_folder, tmp_path):
    shutil.copytree(model_folder, tmp_path, dirs_exist_ok=True)
    state = load_file(tmp_path / "model.safetensors")
    name = next(name for name in state if "down_proj" in name)
    del state[name]
    save_file(state, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(VclibError, match="lacks 1 weights"):
        Policy.load(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"cut short")
    with pytest.raises(VclibError, match="cannot be loaded"):
        Policy.load(tmp_path)


def test_an_unknown_agent_dtype_or_device_is_refused(policy, model_folder):
    for call in (policy.train_only, policy.adapter_parameters):
        with pytest.raises(VclibError, match="Unknown agent 'painter'"):
            call("painter")
    with pytest.raises(VclibError, match="Unknown agent"), policy.acting("painter"):
        pass
    assert policy.agent == "developer"
    with pytest.raises(VclibError, match="Unknown dtype"):
        Policy.load(model_folder, dtype="half-ish")
    with pytest.raises(VclibError, match="No device 'abacus'"):
        Policy.load(model_folder, device="abacus")


def test_bf16_is_taken_only_where_it_is_not_emulated(monkeypatch):
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert choose_dtype("auto", cpu) is torch.float32
    assert choose_dtype("bfloat16", cpu) is torch.bfloat16
    for really, dtype in ((True, torch.bfloat16), (False, torch.float16)):
        # As a T4 answers: yes, if emulation counts.
        answer = lambda including_emulation=True, really=really: really or including_emulation  # noqa: E731
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", answer)
        assert choose_dtype("auto", gpu) is dtype


def test_adapters_of_a_half_precision_model_are_trained_in_fp32(model_folder, samples):
    half = Policy.load(model_folder, dtype="bfloat16", device="cpu")
    assert half.base.lm_head.weight.dtype is torch.bfloat16
    assert {p.dtype for p in half.adapter_parameters("critic").values()} == {torch.float32}
    # Old and new log-probabilities come from the same kind of forward, so they are equal here.
    first, second = (logprobs_of(half, samples[:1], "critic") for _ in range(2))
    assert torch.equal(first, second) and first.dtype is torch.float32
