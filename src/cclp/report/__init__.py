"""Run directories as one self-contained HTML page: :func:`cclp.report.page.make_report`."""
