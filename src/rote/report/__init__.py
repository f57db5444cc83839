"""The report: numbers as words, plots, pages and tables for other programs. Nothing is read or written here."""
