"""Configs: strict loading, dry run, plan."""
