"""Lets pytest collect plans: see rig/pytest_plugin.py."""

pytest_plugins = ["rig.pytest_plugin"]
