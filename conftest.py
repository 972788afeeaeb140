"""Lets pytest collect plans: see docs/pytest.md."""

pytest_plugins = ["rig.pytest_plugin"]
