"""What is plotted, one module for each kind of folder; `mpl` draws it for paper, the page's script on the page."""
