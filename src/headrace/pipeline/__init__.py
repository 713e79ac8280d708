"""Pipelines described in one file: a source, steps, a sink. ``headrace run FILE`` runs them."""
