"""Downstream probes of a row: fine-tuning with a fixed budget, the same for every row."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from litebert.config import FinetuneConfig, resolve, settings_from_words
from litebert.errors import LitebertError
from litebert.runs import read_result
from litebert.train.finetune import finetune

STEPS, BATCH_SIZE, LEARNING_RATE = 200, 32, 3e-4
"""What a probe may spend on a row; it is the same for every row."""


@dataclass(frozen=True)
class Probe:
    """A named task with its folder, or a user's file (SNLI for instance)."""

    task: str
    data: Path

    @classmethod
    def parse(cls, text: str) -> Probe:
        """Read `TASK=PATH`.

        >>> Probe.parse("sst2=data/glue").task
        'sst2'

        Raises:
            LitebertError: LB-762, it is not of this form.
        """
        task, equals, path = text.partition("=")
        if not (task and equals and path):
            raise LitebertError(
                "LB-762",
                "a probe is a task and its data",
                received=text,
                expected="TASK=PATH: a named task and its folder, or a name and a file of your own",
                next="litebert study ablation --help",
            )
        return cls(task, Path(path))

    def measure(self, model: Path, folder: Path, *, seed: int, longest: int) -> float:
        """Fine-tune a model, unless this was done before, and return the task's key measure."""
        run = folder / f"probe-{self.task}"
        if (result := read_result(run)) is None:
            is_file = self.data.is_file()
            words = [
                "task.name=table" if is_file else f"task.name={self.task}",
                f"data.train={self.data}" if is_file else f"data.folder={self.data}",
                f"model.start={model}",
                f"task.max_length={longest}",
                f"task.max_query_length={longest // 4}",
                f"task.doc_stride={longest // 4}",
                f"task.max_qa_length={longest // 2}",
                f"optim.learning_rate={LEARNING_RATE}",
                f"train.steps={STEPS}",
                f"train.eval_every={STEPS}",
                f"train.save_every={STEPS}",
                f"train.batch_size={BATCH_SIZE}",
                f"train.seed={seed}",
                "train.loader_workers=0",
            ]
            outcome = finetune(resolve(FinetuneConfig, settings_from_words(words)), run, is_quiet=True)
            result = read_result(run)
            if result is None:
                raise LitebertError(
                    "LB-830",
                    f"the probe {self.task} was interrupted",
                    received=f"step {outcome.step}",
                    expected=f"{STEPS} steps",
                    next="rerun the command to resume",
                )
        return result.last.measures[result.key_measure]
