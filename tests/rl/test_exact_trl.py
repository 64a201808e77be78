"""Two GRPO steps against an independent implementation: TRL's own trainer, and its samples.

TRL generates, scores and steps; ours gets the ids that TRL drew. The second step is on samples of
an older policy, so that ratios are clipped. Three things differ by choice, and are put aside here:
we mask suppressed ids when scoring as when sampling, where TRL masks when sampling alone; our
standard deviation is the group's own, TRL's is Bessel's; we clip ratios only where asked to.
"""

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from datasets import Dataset
from huggingface_hub import constants
from PIL import Image
from trl import GRPOConfig, GRPOTrainer
from trl_step import PLAIN

from vclib.policy import prompts
from vclib.policy.sampling import Sample
from vclib.rl.episodes import Episode, Turn
from vclib.rl.learner import Learner
from vclib.rl.returns import grpo_advantages
from vclib.rl.runlog import Meter
from vclib.rl.update import assign_credit

K, LIMIT, TEMPERATURE, CLIP = 4, 24, 0.7, 0.05
STEP_SIZE = 1.0
"""Large enough that the second step finds ratios outside 1 ± CLIP."""
TRLS_NAME = {"turn": "grpo", "limit": "dr_grpo", "token": "dapo"}


def reward_of(ids):
    """A number in [0, 1) that differs from completion to completion."""
    return sum(ids) % 97 / 97


class WatchedTrainer(GRPOTrainer):
    """Keeps the batch and the loss of each step."""

    def compute_loss(self, model, inputs, *args, **options):
        loss = super().compute_loss(model, inputs, *args, **options)
        self.seen = getattr(self, "seen", [])
        self.seen.append((inputs, loss.item()))
        return loss


@pytest.fixture(autouse=True)
def nothing_sent(monkeypatch):
    """TRL reports its use to the hub, unless told not to."""
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)


@pytest.fixture
def policy(policy):
    """As TRL sees it: nothing suppressed; each eighth id ends a turn, so that lengths differ."""
    vocab = policy.base.config.text_config.vocab_size
    ends = torch.randperm(vocab, generator=torch.Generator().manual_seed(2))[: vocab // 8]
    policy.eos_ids, policy.suppressed_ids = sorted(ends.tolist()), []
    policy.base.generation_config.eos_token_id = policy.eos_ids
    policy.train_only("developer")
    return policy


@pytest.fixture(scope="module")
def picture():
    pixels = np.random.default_rng(0).integers(0, 256, (64, 96, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def watched_sgd(policy):
    """Plain gradient descent, and the list that the gradient of each step is added to."""
    parameters = list(policy.adapter_parameters("developer").values())
    optimizer = torch.optim.SGD(parameters, lr=STEP_SIZE)
    gradients = []
    optimizer.register_step_pre_hook(
        lambda *_: gradients.append(torch.cat([p.grad.flatten() for p in parameters]))
    )
    return optimizer, gradients


def train_with_trl(policy, picture, folder, **options):
    """Two steps of TRL on one batch; the trainer, the gradients, and the clipped share."""
    optimizer, gradients = watched_sgd(policy)
    config = GRPOConfig(
        output_dir=str(folder),
        per_device_train_batch_size=K,
        num_generations=K,
        num_iterations=2,
        max_steps=2,
        epsilon=CLIP,
        temperature=TEMPERATURE,
        max_completion_length=LIMIT,
        max_grad_norm=0.0,
        lr_scheduler_type="constant",
        **PLAIN | options,
    )
    question = [{"role": "user", "content": prompts.WRITE}]
    trainer = WatchedTrainer(
        model=policy.model,
        reward_funcs=lambda completion_ids, **_: [reward_of(ids) for ids in completion_ids],
        args=config,
        train_dataset=Dataset.from_list([{"prompt": question, "image": picture}]),
        processing_class=policy.processor,
        optimizers=(optimizer, None),
    )
    trainer.train()
    clipped = [row.get("clip_ratio/region_mean") for row in trainer.state.log_history]
    return trainer, gradients, clipped[:2]


def group_of(policy, batch, picture):
    """TRL's batch as a group of ours: our prompt, TRL's completions, the same reward."""
    prompt = policy.encode(prompts.developer_first(picture))
    group = []
    for row in range(K):
        kept = batch["prompt_mask"][row].bool()
        assert torch.equal(batch["prompt_ids"][row][kept], prompt.input_ids)
        ids = batch["completion_ids"][row][batch["completion_mask"][row].bool()]
        drawn = Sample("developer", prompt, ids, "", False, torch.empty(0), TEMPERATURE)
        turn = Turn("developer", drawn, "", reward=reward_of(ids.tolist()))
        group.append(Episode("page", "easy", 0, np.asarray(picture), [turn]))
    return group


@pytest.mark.parametrize("aggregation", TRLS_NAME)
def test_loss_and_gradients_are_those_of_trl(policy, settings, picture, tmp_path, aggregation):
    start = {n: p.detach().clone() for n, p in policy.adapter_parameters("developer").items()}
    trainer, expected, clipped = train_with_trl(
        policy, picture, tmp_path, loss_type=TRLS_NAME[aggregation], scale_rewards="none"
    )
    assert clipped[0] == 0 < clipped[1]
    batch = trainer.seen[0][0]
    lengths = batch["completion_mask"].sum(1).tolist()
    assert len(set(lengths)) > 1

    with torch.no_grad():
        for name, parameter in policy.adapter_parameters("developer").items():
            parameter.copy_(start[name])
    settings = settings.but(
        loss_aggregation=aggregation,
        advantage="dr_grpo",
        clip_ratio=CLIP,
        epochs_per_batch=2,
        developer_tokens=LIMIT,
        max_grad_norm=1e9,
        token_budget=1,
    )
    learner = Learner(policy, settings, Accelerator())
    learner.optimizers["developer"], found = watched_sgd(policy)
    group = group_of(policy, batch, picture)
    assign_credit([group], ["developer"], settings.advantage, settings.lambda_shaped)
    ours = [episode.turns[0].advantage for episode in group]
    assert ours == pytest.approx(batch["advantages"].tolist(), abs=1e-6)
    learned = learner.learn([group], ["developer"], Meter())

    losses = [loss for _, loss in trainer.seen]
    assert learned.loss == pytest.approx(sum(losses) / 2, abs=1e-4)
    for step in range(2):
        assert expected[step].norm() > 1e-2
        assert torch.allclose(found[step], expected[step], atol=1e-4)
        assert (found[step] - expected[step]).norm() < 1e-4 * expected[step].norm()
    assert not torch.allclose(expected[0], expected[1], atol=1e-3)


def test_advantages_are_trls_but_for_bessels_correction(policy, picture, tmp_path):
    trainer, _, _ = train_with_trl(policy, picture, tmp_path, scale_rewards="group")
    group = group_of(policy, trainer.seen[0][0], picture)
    rewards = [episode.turns[0].reward for episode in group]
    ours = [value for [value] in grpo_advantages([[reward] for reward in rewards]).values]
    bessel = (np.std(rewards, ddof=1) + 1e-4) / np.std(rewards)
    expected = trainer.seen[0][0]["advantages"].numpy() * bessel
    assert ours == pytest.approx(expected.tolist(), abs=1e-4)
