"""Read and write the files of a run: run.json, metrics.jsonl, result.json and answers."""

from litebert.runs.answers import Answered, read_answers, read_labels
from litebert.runs.metrics import DamagedRow, LogRow, append_row, read_log, read_metrics
from litebert.runs.record import Record, finite, read_record
from litebert.runs.result import RESULT_FILE, EvaluatedStep, Result, read_result, write_result
from litebert.runs.run import RUN_FILE, RunFile, is_run, locked, read_run, recorded_setting, write_run

__all__ = [
    "RESULT_FILE",
    "RUN_FILE",
    "Answered",
    "DamagedRow",
    "EvaluatedStep",
    "LogRow",
    "Record",
    "Result",
    "RunFile",
    "append_row",
    "finite",
    "is_run",
    "locked",
    "read_answers",
    "read_labels",
    "read_log",
    "read_metrics",
    "read_record",
    "read_result",
    "read_run",
    "recorded_setting",
    "write_result",
    "write_run",
]
