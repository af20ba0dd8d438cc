"""Lay data out on disk, and look whether it is laid out well."""
