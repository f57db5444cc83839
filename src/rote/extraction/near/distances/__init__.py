"""The distances that a search can be asked for: a module each, with its class; the module's name is the distance's."""
