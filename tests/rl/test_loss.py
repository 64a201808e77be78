import gc
import weakref
from dataclasses import replace

import pytest
import torch
from accelerate import Accelerator

from vclib.policy import prompts
from vclib.policy.model import LoraSettings, Policy
from vclib.policy.sampling import SamplingSettings, sample
from vclib.policy.scoring import sequence_logprobs
from vclib.rl.episodes import Episode, Turn
from vclib.rl.learner import HALF_PRECISION_SCALE, Learner
from vclib.rl.loss import backward, policy_loss, token_weights
from vclib.rl.runlog import Meter

ADVANTAGES = [1.0, -0.5, 2.0, -1.5]
TEMPERATURE = 0.7


@pytest.fixture
def drawn(policy, env, seeded):
    """Four Developer samples of unequal length; what the loss sees of a group."""
    picture = env.reset(page_id="blank/train/easy/0").screenshot
    prompt = policy.encode(prompts.developer_first(picture))
    samples = []
    for length in (3, 9, 6, 5):
        settings = SamplingSettings(length, temperature=TEMPERATURE)
        samples += sample(policy, [prompt], "developer", settings, seeded(length))
    return samples


def gradient(policy, agent="developer"):
    grads = [p.grad for p in policy.adapter_parameters(agent).values()]
    assert all(grad is not None for grad in grads)
    return torch.cat([grad.flatten() for grad in grads])


def run_backward(policy, samples, settings, **options):
    policy.train_only("developer")
    policy.model.zero_grad(set_to_none=True)
    tokens = sum(len(s.completion_ids) for s in samples)
    return backward(
        policy,
        samples,
        ADVANTAGES,
        "developer",
        settings,
        turns=len(samples),
        tokens=tokens,
        **options,
    )


@pytest.mark.parametrize("aggregation", ["turn", "token", "limit"])
def test_loss_equals_the_formula_written_out(policy, drawn, settings, aggregation):
    terms = []
    for one, advantage in zip(drawn, ADVANTAGES, strict=True):
        logprobs, _ = sequence_logprobs(policy, [one], "developer", temperature=TEMPERATURE)
        terms.append([-advantage * value for value in logprobs[0].tolist()])
    if aggregation == "turn":
        expected = sum(sum(term) / len(term) for term in terms) / len(terms)
    elif aggregation == "token":
        expected = sum(map(sum, terms)) / sum(map(len, terms))
    else:
        expected = sum(map(sum, terms)) / settings.developer_tokens / len(terms)
    report = run_backward(policy, drawn, settings.but(loss_aggregation=aggregation))
    assert report.loss == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("aggregation", ["turn", "token", "limit"])
def test_micro_batches_add_up_to_the_whole_batch(policy, drawn, settings, aggregation):
    settings = settings.but(loss_aggregation=aggregation)
    whole = run_backward(policy, drawn, settings)
    expected = gradient(policy)
    parts = run_backward(policy, drawn, settings.but(token_budget=1))
    assert parts.loss == pytest.approx(whole.loss, abs=1e-6)
    assert torch.allclose(gradient(policy), expected, atol=1e-5)


def test_gradient_agrees_with_finite_differences(policy, drawn, settings):
    policy.model.double()
    run_backward(policy, drawn, settings)
    generator = torch.Generator().manual_seed(0)
    for parameter in list(policy.adapter_parameters("developer").values())[::5]:
        direction = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        expected = (parameter.grad * direction).sum().item()
        step, losses = 1e-4, []
        for sign in (1, -1):
            with torch.no_grad():
                parameter.add_(sign * step * direction)
                logprobs, mask = sequence_logprobs(
                    policy, drawn, "developer", temperature=TEMPERATURE
                )
                weights = token_weights(mask, "turn", turns=len(drawn), tokens=0)
                losses.append(policy_loss(logprobs, weights, torch.tensor(ADVANTAGES)).item())
                parameter.sub_(sign * step * direction)
        difference = (losses[0] - losses[1]) / (2 * step)
        # log π is made in fp32, which bounds how well the difference is known.
        assert difference == pytest.approx(expected, rel=0.02, abs=5e-3)


def test_gradient_checkpointing_changes_no_gradient(policy, drawn, settings):
    run_backward(policy, drawn, settings)
    expected = gradient(policy)
    run_backward(policy, drawn, settings.but(gradient_checkpointing=True))
    assert torch.allclose(gradient(policy), expected, atol=1e-6)


def test_at_ratio_one_the_clipped_gradient_is_the_plain_one(policy, drawn, settings):
    run_backward(policy, drawn, settings)
    expected = gradient(policy)
    run_backward(policy, drawn, settings.but(clip_ratio=0.2))
    assert torch.allclose(gradient(policy), expected, atol=1e-6)


def test_clipped_loss_computed_by_hand():
    # Ratios 1.5 and 0.5 with advantages +1 and -1: clipped to 1.2 and 0.8.
    logprobs = torch.tensor([[1.5], [0.5]]).log().requires_grad_()
    loss = policy_loss(
        logprobs,
        torch.full((2, 1), 0.5),
        torch.tensor([1.0, -1.0]),
        old_logprobs=torch.zeros(2, 1),
        clip_ratio=0.2,
    )
    loss.backward()
    assert loss.item() == pytest.approx(0.5 * (-1.2 + 0.8))
    assert logprobs.grad.abs().max() == 0


def test_divergence_from_the_base_computed_by_hand():
    loss = policy_loss(
        torch.tensor([[-1.0]]),
        torch.ones(1, 1),
        torch.zeros(1),
        base_logprobs=torch.tensor([[-1.5]]),
        kl_beta=0.1,
    )
    assert loss.item() == pytest.approx(0.1 * (torch.e**-0.5 + 0.5 - 1), abs=1e-6)


def test_divergence_pulls_towards_the_base(policy, drawn, settings):
    plain = run_backward(policy, drawn, settings)
    pulled = run_backward(policy, drawn, settings.but(kl_beta=0.5))
    base, mask = sequence_logprobs(policy, drawn, None, temperature=TEMPERATURE)
    own, _ = sequence_logprobs(policy, drawn, "developer", temperature=TEMPERATURE)
    delta = (base - own).detach()
    divergence = (delta.exp() - delta - 1) * token_weights(mask, "turn", turns=4, tokens=0)
    assert pulled.loss - plain.loss == pytest.approx(0.5 * divergence.sum().item(), abs=1e-5)


def test_padding_weighs_nothing():
    mask = torch.tensor([[True, True, False], [True, False, False]])
    weights = token_weights(mask, "turn", turns=2, tokens=3)
    assert weights.tolist() == [[0.25, 0.25, 0.0], [0.5, 0.0, 0.0]]
    weights = token_weights(mask, "token", turns=2, tokens=3)
    assert weights[0].tolist() == pytest.approx([1 / 3, 1 / 3, 0.0])
    weights = token_weights(mask, "limit", turns=2, tokens=3, limit=5)
    assert weights[0].tolist() == pytest.approx([0.1, 0.1, 0.0])


def test_entropy_of_the_tokens_is_reported(policy, drawn, settings):
    report = run_backward(policy, drawn, settings)
    assert report.tokens == sum(len(one.completion_ids) for one in drawn)
    assert 0 < report.entropy_sum / report.tokens < 7


class LiveTensors:
    """Bytes that graphs hold for their backward pass, and the most that they ever held."""

    def __init__(self):
        self.now = self.peak = 0

    def pack(self, tensor):
        size = tensor.numel() * tensor.element_size()
        held = [tensor]
        holder = _Holder(held)
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(holder, self._drop, size)
        return holder

    def _drop(self, size):
        self.now -= size

    @staticmethod
    def unpack(holder):
        return holder.held[0]


class _Holder:
    def __init__(self, held):
        self.held = held


def test_one_graph_is_alive_at_a_time(policy, drawn, settings):
    def peak(samples):
        live = LiveTensors()
        with torch.autograd.graph.saved_tensors_hooks(live.pack, live.unpack):
            policy.train_only("developer")
            backward(
                policy,
                samples,
                [1.0] * len(samples),
                "developer",
                settings.but(token_budget=1),
                turns=len(samples),
                tokens=1,
            )
        gc.collect()
        return live.peak

    one = peak(drawn[:1])
    assert peak([drawn[0]] * 6) < 1.5 * one


def turns_of(samples, advantages):
    turns = [
        Turn("developer", one, one.text, reward=0.0, advantage=advantage)
        for one, advantage in zip(samples, advantages, strict=True)
    ]
    return [[Episode("page", "easy", 0, None, turns)]]


def learner_for(policy, settings):
    return Learner(policy, settings, Accelerator())


def weights_of(policy, agent):
    return [p.detach().clone() for p in policy.adapter_parameters(agent).values()]


def test_a_step_moves_the_trained_adapter_and_nothing_else(policy, drawn, settings):
    before = {name: p.detach().clone() for name, p in policy.model.named_parameters()}
    learner = learner_for(policy, settings)
    learner.learn(turns_of(drawn, ADVANTAGES), ["developer"], Meter())
    moved = {n for n, p in policy.model.named_parameters() if not torch.equal(p, before[n])}
    assert moved == set(policy.adapter_parameters("developer"))
    trainable = {n for n, p in policy.model.named_parameters() if p.requires_grad}
    assert trainable == moved
    assert not learner.optimizers["critic"].state


def test_a_step_raises_the_probability_of_what_was_better(policy, drawn, settings):
    samples, advantages = drawn[:2], [1.0, -1.0]
    scores = []
    for _ in range(2):
        logprobs, _ = sequence_logprobs(policy, samples, "developer", temperature=TEMPERATURE)
        scores.append(logprobs.sum(1).detach())
        learner_for(policy, settings).learn(turns_of(samples, advantages), ["developer"], Meter())
    assert scores[1][0] > scores[0][0]
    assert scores[1][1] < scores[0][1]


def test_a_silent_group_moves_nothing(policy, drawn, settings):
    before = weights_of(policy, "developer")
    learned = learner_for(policy, settings).learn(
        turns_of(drawn, [0.0] * 4), ["developer"], Meter()
    )
    assert all(map(torch.equal, before, weights_of(policy, "developer")))
    assert learned.skipped_steps == 1 and learned.loss == 0.0


def test_the_gradient_is_clipped_and_its_norm_reported_before(policy, drawn, settings):
    loud = learner_for(policy, settings.but(max_grad_norm=1e-3, weight_decay=0.0))
    loud.optimizers["developer"] = torch.optim.SGD(
        policy.adapter_parameters("developer").values(), lr=1.0
    )
    before = weights_of(policy, "developer")
    learned = loud.learn(turns_of(drawn, ADVANTAGES), ["developer"], Meter())
    after = weights_of(policy, "developer")
    moved = torch.cat([(a - b).flatten() for a, b in zip(after, before, strict=True)]).norm()
    assert moved.item() == pytest.approx(1e-3, rel=1e-3)
    assert learned.grad_norm > 1e-2


def test_a_gradient_that_is_not_finite_is_left_out(policy, drawn, settings):
    before = weights_of(policy, "developer")
    learned = learner_for(policy, settings).learn(
        turns_of(drawn, [float("inf"), 1.0, 1.0, 1.0]), ["developer"], Meter()
    )
    assert learned.skipped_steps == 1
    assert all(map(torch.equal, before, weights_of(policy, "developer")))


def test_a_half_precision_gradient_that_overflows_is_made_again_with_a_smaller_scale(
    model_folder, drawn, settings, policy
):
    run_backward(policy, drawn, settings)
    expected = gradient(policy)
    half = Policy.load(model_folder, lora=LoraSettings(r=4), device="cpu", dtype="float16")
    with torch.no_grad():
        for agent in ("developer", "critic"):
            own = half.adapter_parameters(agent)
            for name, parameter in policy.adapter_parameters(agent).items():
                own[name].copy_(parameter)
    learner = learner_for(half, settings)
    assert learner.scale == HALF_PRECISION_SCALE
    learner.scale = 2.0**20
    learned = learner.learn(turns_of(drawn, ADVANTAGES), ["developer"], Meter())
    assert learned.skipped_steps == 0 and 1 <= learner.scale < 2.0**20
    assert learned.grad_norm == pytest.approx(expected.norm().item(), rel=0.01)


def test_several_epochs_take_several_clipped_steps(policy, drawn, settings):
    settings = settings.but(epochs_per_batch=3, clip_ratio=0.2)
    learner = learner_for(policy, settings)
    learner.learn(turns_of(drawn, ADVANTAGES), ["developer"], Meter())
    steps = {int(state["step"]) for state in learner.optimizers["developer"].state.values()}
    assert steps == {3}


def test_old_logprobs_are_those_before_the_first_step(policy, drawn, settings):
    before, mask = sequence_logprobs(policy, drawn, "developer", temperature=TEMPERATURE)
    report = run_backward(policy, drawn, settings.but(clip_ratio=0.2))
    for i in range(4):
        assert torch.allclose(report.old_logprobs[i], before[i][mask[i]], atol=1e-5)
    again = run_backward(
        policy, drawn, settings.but(clip_ratio=0.2), old_logprobs=report.old_logprobs
    )
    assert again.loss == pytest.approx(-sum(ADVANTAGES) / 4, abs=1e-4)


def test_what_comes_after_the_first_eos_is_not_trained_on(policy, drawn, settings):
    eos = torch.tensor([policy.eos_ids[0]])
    ended = replace(drawn[0], completion_ids=torch.cat([drawn[0].completion_ids, eos]))
    longer = replace(ended, completion_ids=torch.cat([ended.completion_ids, eos, eos]))
    policy.train_only("developer")
    reports = [
        backward(policy, [one], [1.0], "developer", settings, turns=1, tokens=1)
        for one in (ended, longer)
    ]
    assert reports[0].tokens == reports[1].tokens
    assert reports[0].loss == pytest.approx(reports[1].loss, abs=1e-6)
