"""What a notebook shows that moves: curves to explore, episodes to replay, a run to watch.

Everything carries a PNG and a text that never changes, so that it is seen where no kernel runs
and two runs of a notebook can be compared.
"""

from vclib.notebook.base import Explorer, Picture
from vclib.notebook.curves import RewardExplorer
from vclib.notebook.dashboard import Dashboard
from vclib.notebook.explorers import CreditExplorer
from vclib.notebook.inspector import RewardInspector
from vclib.notebook.replayer import EpisodeReplayer
from vclib.notebook.strips import captioned_strip, draft_strip, episode_strip, wrapped

__all__ = [
    "CreditExplorer",
    "Dashboard",
    "EpisodeReplayer",
    "Explorer",
    "Picture",
    "RewardExplorer",
    "RewardInspector",
    "captioned_strip",
    "draft_strip",
    "episode_strip",
    "wrapped",
]
