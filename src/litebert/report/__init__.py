"""The report of a run: one page that opens anywhere, without a network."""

from litebert.report.page import write_report

__all__ = ["write_report"]
