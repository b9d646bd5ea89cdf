"""Builds all files of a release from the sources of one commit: docs/how-to/operations/release.md."""
