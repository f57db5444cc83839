"""Long texts: a model writes on, chunk after chunk."""
