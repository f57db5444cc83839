"""The report: a run's manifest, summary and score table as one self-contained HTML page."""
