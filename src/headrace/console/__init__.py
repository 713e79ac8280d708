"""The console: a server whose pages show what Headrace does; its first room is the feed desk. Needs the extra ``console``."""
