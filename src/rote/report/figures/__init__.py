"""What is plotted, apart from how it is drawn."""
