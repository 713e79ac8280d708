"""Pipelines that one file describes: a source, steps and a sink. ``headrace run FILE`` runs them."""
