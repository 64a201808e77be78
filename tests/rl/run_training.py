"""Training runs in processes of their own: settings as JSON, a line a run, from standard input."""

import json
import os
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


def train(settings: TrainSettings) -> None:
    shard = True if "--shard" in sys.argv else None
    with WebPageEnv(BlankPages()) as env, Trainer(settings, env, shard=shard) as trainer:
        print("done", trainer.done, flush=True)
        for update in trainer.run():
            print("done", update.index, flush=True)


def main() -> None:
    """Begin a run for each line of JSON; a fork begins at once, with everything imported."""
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            os.close(0)
            train(TrainSettings(**json.loads(line)))
            os._exit(0)
        print("pid", pid, flush=True)
        print("ended", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
