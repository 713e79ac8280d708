"""Python imports this when it starts with this directory on its path: its wall clock then follows the harness."""

from soak.jumping_clock import follow_environment

follow_environment()
