"""Numbers in words and tables, for the terminal and the page."""
