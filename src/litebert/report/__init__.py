"""What runs reached: pages that open anywhere, tables for the terminal and for machines, figures."""

from litebert.report.training import REPORT_FILE, write_report

__all__ = ["REPORT_FILE", "write_report"]
