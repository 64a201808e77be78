"""Updates on samples of an older policy, against the formulas written out token by token."""

import math

import pytest
import torch
from accelerate import Accelerator

from vclib.policy import prompts
from vclib.policy.model import LoraSettings, Policy
from vclib.policy.sampling import SamplingSettings, sample
from vclib.policy.scoring import sequence_logprobs
from vclib.rl.episodes import Episode, Turn
from vclib.rl.learner import Learner
from vclib.rl.loss import backward
from vclib.rl.runlog import Meter

ADVANTAGES = [1.0, -0.5, 2.0, -1.5]
STEP_SIZE = 0.1


@pytest.fixture
def samples(policy, seeded, noise):
    """Four Developer turns of different lengths, after pictures of different sizes."""
    settings = (SamplingSettings(limit) for limit in (3, 12, 7, 5))
    asked = [
        prompts.developer_first(noise(64, 64)),
        prompts.developer_revision("<p>A page</p>", "row 1: the words are wrong", noise(96, 64)),
        prompts.developer_first(noise(64, 128)),
        prompts.developer_revision("<p>Another page</p>" * 3, None),
    ]
    return [
        sample(policy, [policy.encode(messages)], "developer", limit, seeded(1))[0]
        for messages, limit in zip(asked, settings, strict=True)
    ]


def written_out(new, old, base, advantages, clip, beta):
    """The loss as the papers have it: each token, then the mean of a turn, then that of turns."""
    turns = []
    for log_new, log_old, log_base, advantage in zip(new, old, base, advantages, strict=True):
        tokens = []
        for p, before, reference in zip(log_new, log_old, log_base, strict=True):
            if clip is None:
                gain = p * advantage
            else:
                ratio = torch.exp(p - before)
                low_or_high = min(max(ratio, 1 - clip), 1 + clip)
                gain = min(ratio * advantage, low_or_high * advantage)
            divergence = torch.exp(reference - p) - (reference - p) - 1
            tokens.append(-gain + beta * divergence)
        turns.append(sum(tokens) / len(tokens))
    return sum(turns) / len(turns)


def reference_run(policy, samples, plain_logprobs, clip, beta, epochs):
    """Losses, gradients, adapters and the largest ratio of a run of gradient descent."""

    def scores(agent):
        with policy.acting(agent):
            return [plain_logprobs(policy, one) for one in samples]

    parameters = list(policy.adapter_parameters("developer").values())
    losses, gradients, largest = [], [], 1.0
    with torch.no_grad():
        old, base = scores("developer"), scores(None)
    for _ in range(epochs):
        new = scores("developer")
        loss = written_out(new, old, base, ADVANTAGES, clip, beta)
        grads = torch.autograd.grad(loss, parameters)
        losses.append(loss.item())
        gradients.append(torch.cat([grad.flatten() for grad in grads]))
        ratios = (torch.exp(n - o).max().item() for n, o in zip(new, old, strict=True))
        largest = max(largest, *ratios)
        with torch.no_grad():
            for parameter, grad in zip(parameters, grads, strict=True):
                parameter.sub_(STEP_SIZE * grad)
    return losses, gradients, largest


def weights_of(policy):
    return {n: p.detach().clone() for n, p in policy.adapter_parameters("developer").items()}


def learner_of(policy, settings, gradients):
    learner = Learner(policy, settings.but(max_grad_norm=1e9), Accelerator())
    parameters = list(policy.adapter_parameters("developer").values())
    descent = torch.optim.SGD(parameters, lr=STEP_SIZE)
    descent.register_step_pre_hook(
        lambda *_: gradients.append(torch.cat([p.grad.flatten() for p in parameters]))
    )
    learner.optimizers["developer"] = descent
    return learner


def group_of(samples):
    turns = [
        Turn("developer", one, one.text, reward=0.0, advantage=advantage)
        for one, advantage in zip(samples, ADVANTAGES, strict=True)
    ]
    return [[Episode("page", "easy", 0, None, turns)]]


@pytest.mark.parametrize(
    ("clip", "beta", "epochs", "token_budget"),
    [(None, 0.3, 1, 1), (0.1, 0.0, 3, 10_000), (0.1, 0.3, 3, 1)],
)
def test_reuse_clipping_and_divergence_are_the_formulas(
    policy, samples, settings, plain_logprobs, clip, beta, epochs, token_budget
):
    policy.train_only("developer")
    start = weights_of(policy)
    losses, gradients, largest = reference_run(policy, samples, plain_logprobs, clip, beta, epochs)
    assert clip is None or largest > 1 + clip
    expected = weights_of(policy)
    with torch.no_grad():
        for name, parameter in policy.adapter_parameters("developer").items():
            parameter.copy_(start[name])

    found = []
    settings = settings.but(
        clip_ratio=clip, kl_beta=beta, epochs_per_batch=epochs, token_budget=token_budget
    )
    learned = learner_of(policy, settings, found).learn(group_of(samples), ["developer"], Meter())
    assert learned.loss == pytest.approx(sum(losses) / epochs, abs=1e-4)
    for grad, right in zip(found, gradients, strict=True):
        assert (grad - right).norm() < 1e-3 * right.norm()
    for name, parameter in policy.adapter_parameters("developer").items():
        assert torch.allclose(parameter, expected[name], atol=1e-4)
    assert policy.agent == "developer"
    trainable = {name for name, p in policy.model.named_parameters() if p.requires_grad}
    assert trainable == set(start)


def test_divergence_is_from_the_base_whatever_the_adapters_are(policy, samples, settings):
    """Turning the adapter off gives the model as it was loaded, and gives no gradient."""
    with torch.no_grad():
        before, mask = sequence_logprobs(policy, samples, None, temperature=0.7)
        for agent in ("developer", "critic"):
            for parameter in policy.adapter_parameters(agent).values():
                parameter.add_(0.1)
        after, _ = sequence_logprobs(policy, samples, None, temperature=0.7)
        own, _ = sequence_logprobs(policy, samples, "developer", temperature=0.7)
    assert torch.equal(before, after)
    assert (own - after)[mask].abs().max() > 0.1


def test_in_low_precision_the_first_ratio_is_one_though_decoding_says_otherwise(
    model_folder, settings, seeded, noise
):
    half = Policy.load(model_folder, lora=LoraSettings(r=4), device="cpu", dtype="bfloat16")
    asked = [half.encode(prompts.developer_first(noise(64, 64)))] * 4
    drawn = sample(half, asked, "developer", SamplingSettings(16), seeded(0))
    logprobs, mask = sequence_logprobs(half, drawn, "developer", temperature=0.7)
    decoded = torch.nn.utils.rnn.pad_sequence([one.logprobs for one in drawn], batch_first=True)
    assert (logprobs - decoded)[mask].abs().max() > 1e-4
    half.train_only("developer")
    report = backward(
        half,
        drawn,
        ADVANTAGES,
        "developer",
        settings.but(clip_ratio=0.2),
        turns=4,
        tokens=sum(len(one.completion_ids) for one in drawn),
    )
    assert math.isclose(report.loss, -sum(ADVANTAGES) / 4, abs_tol=1e-6)
