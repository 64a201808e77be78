"""What an exercise calls correct is what the library does."""

import torch

from vclib.notebook.checks import verdict
from vclib.policy.prompts import is_done
from vclib.policy.sampling import _draw
from vclib.rl.loss import policy_loss, token_weights


def one_token(logprob, advantage, **options):
    """The library's loss of a single token."""
    tensors = {name: torch.tensor([[x]]).double() for name, x in options.items() if "log" in name}
    options = {**options, **tensors}
    return policy_loss(
        torch.tensor([[logprob]]).double(), torch.ones(1, 1), torch.tensor([advantage]), **options
    ).item()


def test_done_and_draws_agree_with_the_library():
    def draw(probabilities, uniform):
        scores = torch.tensor([probabilities]).double().log()
        return _draw(scores, torch.tensor([uniform]).double()).item()

    assert verdict("says_done", is_done) == "correct"
    assert verdict("draw_token", draw) == "correct"


def test_the_parts_of_the_loss_agree_with_the_library():
    def clipped(ratio, advantage, epsilon):
        logprob = torch.tensor(ratio).double().log().item()
        return one_token(logprob, advantage, old_logprobs=0.0, clip_ratio=epsilon)

    def divergence(logprob, base_logprob):
        return one_token(logprob, 0.0, base_logprobs=base_logprob, kl_beta=1.0)

    def mean(values, mask):
        weights = token_weights(torch.tensor(mask), "turn", turns=len(mask), tokens=0)
        return policy_loss(torch.tensor(values), weights, -torch.ones(len(mask))).item()

    assert verdict("clipped_loss", clipped) == "correct"
    assert verdict("kl_k3", divergence) == "correct"
    assert verdict("mean_over_turns", mean) == "correct"


def test_log_probabilities_of_tokens_are_those_of_torch():
    def by_torch(logits, ids):
        scores = torch.log_softmax(torch.tensor(logits).double(), dim=-1)[:-1]
        return scores.gather(-1, torch.tensor(ids)[1:, None])[:, 0]

    assert verdict("token_logprobs", by_torch) == "correct"
