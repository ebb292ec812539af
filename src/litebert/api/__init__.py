"""The library as Python users call it; the command line calls nothing else."""

from litebert.api.corpus import build_from_texts, train_vocabulary
from litebert.api.evaluation import Evaluation, evaluate, evaluate_predictions, evaluate_zero_shot
from litebert.api.finetuning import FinetuneJob, finetune
from litebert.api.glue_runs import GlueRuns, glue
from litebert.api.plan import RunPlan
from litebert.api.prediction import Predictions, predict
from litebert.api.pretraining import PretrainJob, distil, pretrain
from litebert.api.recipes import copy_recipe, list_recipes, recipe
from litebert.api.run import Run

__all__ = [
    "Evaluation",
    "FinetuneJob",
    "GlueRuns",
    "Predictions",
    "PretrainJob",
    "Run",
    "RunPlan",
    "build_from_texts",
    "copy_recipe",
    "distil",
    "evaluate",
    "evaluate_predictions",
    "evaluate_zero_shot",
    "finetune",
    "glue",
    "list_recipes",
    "predict",
    "pretrain",
    "recipe",
    "train_vocabulary",
]
