"""What is on disk: folders, tables, and the declared types of everything that they hold."""
