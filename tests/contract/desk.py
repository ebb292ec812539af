"""A desk of small things that the shell made: texts, tables, and a run of each kind."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from .shell import QUICK, TABLES, litebert, story


@dataclass(frozen=True)
class Desk:
    """Where everything lies; a run of each kind under its name."""

    folder: Path

    def __getattr__(self, name: str) -> Path:
        """Give the run of this name."""
        run = self.folder / "runs" / name
        if not run.is_dir():
            raise AttributeError(name)
        return run

    stories = property(lambda self: self.folder / "stories.txt")  # forty documents, a sentence a line
    corpus = property(lambda self: self.folder / "runs" / "base" / "corpus")
    tokenizer = property(lambda self: self.folder / "runs" / "base" / "tokenizer")

    def table(self, name: str) -> Path:
        return self.folder / name


PRETRAIN = ("--preset", "tiny", "--vocab-size", 70, "--sentences", "line", "objective.max_seq_length=64")
"""How the text of stories is pretrained on; with QUICK, in a second."""


@pytest.fixture(scope="session")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """Pretrain on forty stories, and fine-tune on a table of each kind."""
    folder = tmp_path_factory.mktemp("desk")
    (folder / "stories.txt").write_text("\n".join(story(number) for number in range(40)), encoding="utf-8")
    for name, text in TABLES.items():
        (folder / name).write_text(text, encoding="utf-8")
    made = [litebert("pretrain", "stories.txt", *PRETRAIN, "--held-out", 0.2, "--name", "base", *QUICK, cwd=folder)]
    made += [litebert("finetune", name, "--model", "runs/base", *QUICK, cwd=folder) for name in TABLES]
    assert [done.code for done in made] == [0] * len(made), made
    return Desk(folder)
