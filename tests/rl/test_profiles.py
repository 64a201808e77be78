import inspect
from dataclasses import fields

import pytest

from vclib.errors import VclibError
from vclib.rl import profiles
from vclib.rl.profiles import PROFILES, TrainSettings


def test_there_is_a_profile_for_each_kind_of_machine():
    assert list(PROFILES) == ["ci", "laptop", "t4", "gpu"]
    assert PROFILES["t4"].model == "Qwen/Qwen3.5-0.8B"
    assert PROFILES["gpu"].model == "Qwen/Qwen3.5-9B"


def test_gpu_profile_has_the_published_defaults():
    gpu = PROFILES["gpu"]
    assert (gpu.episodes, gpu.k_rollouts, gpu.learning_rate) == (200, 4, 2e-5)
    assert (gpu.lambda_shaped, gpu.temperature) == (0.2, 0.7)
    assert (gpu.developer_tokens, gpu.critic_tokens) == (2048, 512)
    assert (gpu.pages, gpu.pages_per_update, gpu.checkpoint_every) == ("web", 1, 50)


def test_every_setting_is_explained_on_its_line():
    source = inspect.getsource(TrainSettings)
    for field in fields(TrainSettings):
        [line] = [row for row in source.splitlines() if row.startswith(f"    {field.name}: ")]
        assert "  # " in line, field.name


def test_alternate_goes_developer_critic_developer():
    schedule = TrainSettings(num_phases=3, episodes_per_phase=5).schedule
    assert schedule == (("developer", 5), ("critic", 5), ("developer", 5))


def test_a_single_phase_has_all_episodes():
    assert TrainSettings(phase="critic", episodes=7).schedule == (("critic", 7),)


def test_each_update_knows_its_phase_and_whether_it_is_the_last_of_it():
    settings = TrainSettings(num_phases=2, episodes_per_phase=2)
    assert [settings.phase_at(i) for i in range(4)] == [
        (0, "developer", False),
        (0, "developer", True),
        (1, "critic", False),
        (1, "critic", True),
    ]


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"k_rollouts": 0}, "k_rollouts"),
        ({"phase": "both"}, "phase"),
        ({"difficulty": "brutal"}, "difficulty"),
        ({"advantage": "gae"}, "advantage"),
        ({"temperature": 0.0}, "temperature"),
        ({"env": "http"}, "env_url"),
        ({"epochs_per_batch": 2}, "clip_ratio"),
        ({"phase": "critic", "max_steps": 1}, "max_steps"),
        ({"phase": "combined", "use_critic": False}, "use_critic"),
    ],
)
def test_settings_that_cannot_work_are_refused_by_name(changes, word):
    with pytest.raises(VclibError, match=word):
        TrainSettings(**changes)


def test_an_unknown_setting_is_refused_with_the_known_ones():
    with pytest.raises(VclibError, match=r"k_rolouts.*known are.*k_rollouts"):
        TrainSettings().but(k_rolouts=3)


def test_a_phase_trains_its_own_agent_and_combined_both():
    assert profiles.trained_agents("developer") == ("developer",)
    assert profiles.trained_agents("critic") == ("critic",)
    assert profiles.trained_agents("combined") == ("developer", "critic")
