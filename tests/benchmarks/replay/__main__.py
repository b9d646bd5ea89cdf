"""`make replay`: `python -m tests.benchmarks.replay TRACE`, with the settings of the ledger itself, not those of the tests."""

import os

import django

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ledger_project.settings")
    django.setup()
    from tests.benchmarks.replay.command import main

    main()
