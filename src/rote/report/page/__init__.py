"""HTML pages: layout, packed numbers, one module for each kind of folder."""
