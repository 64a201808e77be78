"""A training run in a process of its own: settings as JSON on the command line."""

import json
import sys

from vclib.env.environment import WebPageEnv
from vclib.env.pages import Page, PageSet
from vclib.rl.profiles import TrainSettings
from vclib.rl.trainer import Trainer


class BlankPages(PageSet):
    """Pages with nothing on them, where even a random model's rewards differ and are not 0."""

    name = "blank"
    viewport = (64, 64)

    def page(self, page_id):
        _, split, difficulty, index = page_id.split("/")
        return self._at(split, difficulty, int(index))

    def _at(self, split, difficulty, index):
        html = f"<!doctype html><html><body><!-- {index} --></body></html>"
        return Page(f"blank/{split}/{difficulty}/{index}", html, split, difficulty)


def main() -> None:
    settings = TrainSettings(**json.loads(sys.argv[1]))
    with WebPageEnv(BlankPages()) as env, Trainer(settings, env) as trainer:
        for update in trainer.run():
            print(update.index, flush=True)


if __name__ == "__main__":
    main()
