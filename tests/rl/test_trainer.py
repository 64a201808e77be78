import json
import os
import signal
import threading

import pytest
import torch

from vclib.errors import VclibError
from vclib.paths import TINY
from vclib.rl import checkpoint
from vclib.rl.runlog import CONFIG, DIAGNOSTICS, TRAIN_LOG, read_jsonl, read_rewards
from vclib.rl.trainer import Trainer


def adapters(policy):
    return {
        agent: [p.detach().clone() for p in policy.adapter_parameters(agent).values()]
        for agent in ("developer", "critic")
    }


def same(left, right):
    return all(map(torch.equal, left, right))


def train(settings, env, stop_after=None):
    with Trainer(settings, env) as trainer:
        updates = []
        for update in trainer.run():
            updates.append(update)
            if update.index == stop_after:
                trainer.stop()
        return trainer, updates


def lines(settings, name=TRAIN_LOG):
    return (settings.run_folder / name).read_text().splitlines()


@pytest.mark.parametrize(
    ("phase", "trained"),
    [
        ("developer", {"developer"}),
        ("critic", {"critic"}),
        ("combined", {"developer", "critic"}),
    ],
)
def test_a_phase_moves_its_own_adapters_and_no_others(settings, env, phase, trained):
    with Trainer(settings.but(phase=phase), env) as trainer:
        before = adapters(trainer.policy)
        updates = list(trainer.run())
        after = adapters(trainer.policy)
    assert {agent for agent in before if not same(before[agent], after[agent])} == trained
    assert [update.phase for update in updates] == [phase, phase]
    for update in updates:
        turns = [t for group in update.episodes for e in group for t in e.turns]
        assert {t.agent for t in turns if t.advantage is not None} == trained
        assert all(t.return_ is not None for t in turns)
        assert update.loss != 0 and update.grad_norm > 0


def test_alternate_trains_one_adapter_after_the_other(settings, env):
    settings = settings.but(phase="alternate", num_phases=2, episodes_per_phase=1)
    with Trainer(settings, env) as trainer:
        run = trainer.run()
        start = adapters(trainer.policy)
        assert next(run).phase == "developer"
        middle = adapters(trainer.policy)
        assert next(run).phase == "critic"
        end = adapters(trainer.policy)
        assert next(run, None) is None
    assert same(start["critic"], middle["critic"])
    assert not same(start["developer"], middle["developer"])
    assert same(middle["developer"], end["developer"])
    assert not same(middle["critic"], end["critic"])
    assert [path.name for path in sorted(settings.checkpoint_folder.iterdir())] == [
        "update-000001",
        "update-000002",
    ]


@pytest.fixture(scope="module")
def finished(base_settings, env, tmp_path_factory):
    """A run of two updates of two groups of three episodes, and what it yielded."""
    settings = base_settings.but(
        output=str(tmp_path_factory.mktemp("outputs")), k_rollouts=3, pages_per_update=2
    )
    return settings, train(settings, env)[1]


def test_an_update_carries_what_a_dashboard_needs(finished):
    _, [first, second] = finished
    assert (first.index, second.index, first.total) == (1, 2, 2)
    assert set(first.by_difficulty) <= {"easy", "medium", "hard"}
    assert first.by_difficulty.keys() | second.by_difficulty.keys() == {"easy", "medium", "hard"}
    assert 0 < first.mean_terminal_reward < 1 and first.mean_steps == 2.0
    assert set(first.seconds) == {"render", "sample", "score", "update"}
    assert first.entropy > 0 and first.group_std > 0 and first.silent_share == 0
    assert first.lengths["developer"] <= 8 and first.lengths["critic"] <= 3
    assert first.tokens_per_second > 0 and first.reward_parts.keys() >= {"ssim", "format"}
    assert [len(group) for group in first.episodes] == [3, 3]


def test_the_logs_of_a_run(finished, env):
    settings, updates = finished
    rows = read_rewards(settings.run_folder)
    assert [(r["phase"], r["episode"], r["mean_steps"]) for r in rows] == [
        ("developer", 1, 2.0),
        ("developer", 2, 2.0),
    ]
    logged, seen = rows[0]["mean_terminal_reward"], updates[0].mean_terminal_reward
    assert logged == pytest.approx(seen, abs=1e-6)
    [first, _] = read_jsonl(settings.run_folder / TRAIN_LOG)
    assert list(first) == ["iter", "easy", "medium", "hard", "mean", "loss"]
    diagnostics = read_jsonl(settings.run_folder / DIAGNOSTICS)[1]
    promised = (
        "group_std silent_share grad_norm entropy lengths truncated_share parse_failure_share "
        "tokens_per_second seconds"
    )
    assert diagnostics.keys() >= set(promised.split())
    config = json.loads((settings.run_folder / CONFIG).read_text())
    assert config["browser"] == env.renderer.browser
    assert config["settings"]["k_rollouts"] == 3


def test_the_configuration_names_a_model_of_the_project_by_its_place_in_it(settings, env):
    train(settings.but(model=str(TINY), episodes=1, max_steps=1), env)
    config = json.loads((settings.run_folder / CONFIG).read_text())
    assert config["settings"]["model"] == "data/models/vc-tiny"


def test_the_frozen_partner_plays_its_adapter_or_the_base(finished, settings, env):
    _, [update] = train(settings.but(episodes=1, partner="base"), env)
    for played, adapter in ((finished[1][0], "critic"), (update, None)):
        turns = [t for group in played.episodes for e in group for t in e.critic_turns]
        assert turns and {turn.sample.agent for turn in turns} == {adapter}


def test_a_page_is_never_seen_twice_while_the_split_lasts(finished):
    _, updates = finished
    pages = [group[0].page_id for update in updates for group in update.episodes]
    assert len(set(pages)) == 4


def test_updates_that_are_kept_hold_no_patches_of_pictures(finished):
    _, updates = finished
    turns = [t for u in updates for group in u.episodes for e in group for t in e.turns]
    assert len(turns) == 36 and not any(turn.sample.prompt.images for turn in turns)
    assert all(turn.render is not None for turn in turns if turn.agent == "developer")


def test_the_same_seed_gives_the_same_numbers_and_another_seed_others(settings, env, tmp_path):
    runs = [settings.but(run=f"run-{i}", episodes=1, seed=seed) for i, seed in enumerate((0, 0, 1))]
    for run in runs:
        train(run, env)
    first, again, other = map(lines, runs)
    assert again == first != other


def test_stop_saves_and_the_run_goes_on_from_there(settings, env):
    settings = settings.but(episodes=3)
    stopped, updates = train(settings, env, stop_after=1)
    assert len(updates) == 1 and "update 1 of 3" in stopped.how_to_go_on
    resumed = settings.but(resume_from=str(settings.run_folder))
    finished, updates = train(resumed, env)
    assert [update.index for update in updates] == [2, 3] and finished.finished
    assert [row["episode"] for row in read_rewards(settings.run_folder)] == [1, 2, 3]


def test_breaking_off_the_loop_loses_no_update(settings, env):
    with Trainer(settings, env) as trainer:
        for _ in trainer.run():
            break
    assert checkpoint.find(settings.run_folder).name == "update-000001"


def test_ctrl_c_finishes_the_update_saves_and_says_how_to_go_on(settings, env, capsys, monkeypatch):
    before, reset, pressed = signal.getsignal(signal.SIGINT), env.reset, []

    def press_once(*arguments, **named):
        if not pressed:
            pressed.append(signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
        return reset(*arguments, **named)

    with Trainer(settings, env) as trainer:
        monkeypatch.setattr(env, "reset", press_once)
        updates = list(trainer.run())
    assert pressed and len(updates) == 1
    assert "--resume-from" in capsys.readouterr().err
    assert checkpoint.find(settings.run_folder).name == "update-000001"
    assert signal.getsignal(signal.SIGINT) is before


def test_training_works_on_a_thread_that_is_not_the_main_one(settings, env):
    found = []
    one = settings.but(episodes=1)
    thread = threading.Thread(target=lambda: found.extend(train(one, env)[1]))
    thread.start()
    thread.join()
    assert len(found) == 1


def test_a_folder_that_holds_a_run_is_not_overwritten_unasked(settings, env):
    train(settings.but(episodes=1), env)
    with pytest.raises(VclibError, match="already holds a run"):
        Trainer(settings, env)
    train(settings.but(episodes=1, overwrite=True), env)
    assert len(read_rewards(settings.run_folder)) == 1


def test_resuming_with_other_settings_is_refused_by_name(settings, env):
    train(settings.but(episodes=1), env)
    changed = settings.but(resume_from=str(settings.run_folder), learning_rate=0.5)
    with pytest.raises(VclibError, match="learning_rate"):
        Trainer(changed, env)


def test_trackers_write_curves_where_asked_for(settings, env):
    pytest.importorskip("tensorboard")
    train(settings.but(episodes=1, trackers=("tensorboard",)), env)
    assert list(settings.run_folder.glob("events.out.tfevents.*"))


def test_updates_of_a_single_draft_need_no_critic(settings, env):
    _, [update] = train(settings.but(max_steps=1, episodes=1), env)
    assert update.mean_steps == 1.0
    assert "critic" not in update.lengths


def test_training_over_http_gives_the_same_numbers(settings, env):
    server = pytest.importorskip("vclib.env.server")
    train(settings.but(episodes=1), env)
    with server.background_server(env) as url:
        remote = settings.but(episodes=1, run="remote", env="http", env_url=url, pages="blank")
        train(remote, None)
        with pytest.raises(VclibError, match="serves blank train"):
            Trainer(remote.but(run="wrong", split="heldout"))
    assert lines(remote) == lines(settings)
